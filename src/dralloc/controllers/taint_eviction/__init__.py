"""Pods whose devices got a taint that they do not tolerate: when they have to go, and what their rules say about it."""
