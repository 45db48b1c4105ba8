"""Simulated nodes: many nodes in one process that publish devices from a profile and run pods that do nothing."""
