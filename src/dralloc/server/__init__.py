"""Layer 3: a Kubernetes API over HTTP, on top of the revisioned store."""
