"""Stored objects as they are: reads, lists, watches, indexes that follow the store, and decisions about access by stored roles."""
