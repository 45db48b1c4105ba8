"""Removes finished consumers from claims, deallocates unused claims and deletes claims of finished pods."""
