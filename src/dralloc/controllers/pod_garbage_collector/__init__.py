"""Deletes pods that no node will ever end."""
