"""Writes the usage into the statuses of quotas. The limits are enforced by the API server."""
