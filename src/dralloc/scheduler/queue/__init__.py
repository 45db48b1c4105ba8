"""Which pod is tried next, and which cluster event wakes a parked pod."""
