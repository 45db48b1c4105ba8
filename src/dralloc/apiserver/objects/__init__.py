"""Objects: reading, watching, writing and deleting what the store holds."""
