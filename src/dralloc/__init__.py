"""dralloc: Kubernetes Dynamic Resource Allocation as a library, a command and a control plane."""

__version__ = "0.1.0"
