"""Layer 0, pure: the basic values that every other package uses."""
