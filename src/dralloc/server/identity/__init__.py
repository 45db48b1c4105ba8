"""Credentials of the server: certificates, tokens and kubeconfig files."""
