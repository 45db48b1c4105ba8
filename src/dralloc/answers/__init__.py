"""What would happen: allocate, plan, explain and top, answered by the scheduler's own cycle. Nothing is written to a cluster."""
