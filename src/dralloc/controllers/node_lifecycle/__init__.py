"""Nodes whose agents do not answer: marked unknown, tainted; their pods marked not ready."""
