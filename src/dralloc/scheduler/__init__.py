"""Layer 4: pods get a node and their devices. It meets the other components only through the API."""
