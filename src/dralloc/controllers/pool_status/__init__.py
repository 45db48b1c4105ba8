"""Answers requests for the status of resource pools, and deletes them later (KEP-5677)."""
