"""Layer 5: compares our code, or a server, with recorded answers of Kubernetes."""
