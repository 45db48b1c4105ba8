"""Evicts pods from nodes with taints that they do not tolerate, or not for ever."""
