"""`dralloc doctor`: faults of a cluster, each with its evidence and the command that mends it."""
