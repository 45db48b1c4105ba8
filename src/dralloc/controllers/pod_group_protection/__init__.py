"""Keeps a deleted PodGroup until its pods have finished."""
