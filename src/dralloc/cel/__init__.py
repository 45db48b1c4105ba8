"""Layer 1, pure: the expression language of device selectors, as Kubernetes speaks it."""
