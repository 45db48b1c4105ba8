"""Layer 0, pure: values that every other package is written in."""
