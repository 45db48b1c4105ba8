"""The allocator: which devices a pod's claims get on one node. Same answers as Kubernetes, without its exponential search.

Pure: `allocate` is a function of a problem. Share IDs and the time are added by `stamp` when an allocation is committed.
"""
