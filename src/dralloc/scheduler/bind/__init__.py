"""Writes a decision to the API: claims first, then the pod. Undoes what cannot be finished."""
