"""Layer 1, pure: CEL, the expression language of device selectors, as Kubernetes implements it."""
