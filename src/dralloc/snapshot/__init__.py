"""The cluster at one revision, as the allocator sees it: pools, what is used of them, taints, nodes.

Pure. A `Snapshot` is immutable; a change gives a new one that shares everything else with the old, so that the
cost follows what changed and anyone may keep a consistent view for as long as they like.
"""
