"""Stored objects: read, list, watch, write and delete them; quota, device and priority guards."""
