"""Every change of a stored object: requests, admission, guards, and the one writer."""
