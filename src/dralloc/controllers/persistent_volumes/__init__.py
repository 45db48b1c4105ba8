"""Binds claims to existing persistent volumes."""
