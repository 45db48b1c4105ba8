"""The cluster at one revision, as the allocator sees it: pools, their usage, taint rules and nodes.

Pure. A `Snapshot` is immutable; a change returns a new one that shares the rest with the old. The cost follows the
change, and a snapshot stays a consistent view as long as it is kept.
"""
