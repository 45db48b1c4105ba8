"""Layer 3: a typed client for any Kubernetes API server, over HTTP or inside this process."""
