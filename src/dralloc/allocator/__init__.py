"""Which devices a pod's claims get on one node: the answer that Kubernetes gives, without its exponential search.

Pure: `allocate` is a function of a problem. Time, randomness and ids come in as arguments.
"""
