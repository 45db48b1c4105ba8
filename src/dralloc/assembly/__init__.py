"""Layer 5: whole systems put together from their components, to run and to measure."""
