"""The cluster as the scheduler sees it: what the API shows, plus decisions that are not written yet."""
