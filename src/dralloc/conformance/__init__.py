"""Layer 5: recorded answers of Kubernetes, put to our code and to servers."""
