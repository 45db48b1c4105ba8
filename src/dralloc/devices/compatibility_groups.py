"""Compatibility groups: which devices may draw from one counter set at the same time.

Devices with groups are compatible if at least one group is common to all of them. Devices without groups are
compatible only with each other.
"""

from __future__ import annotations

# The groups common to all devices so far. Empty if these devices have none.
Groups = frozenset[str]


def admit(common: Groups | None, groups: Groups) -> Groups | None:
    """The common groups after a device with these groups joins; None if it is not compatible.

    `common` is None if no device draws from the counter set yet.
    """
    if common is None:
        return groups
    if not common or not groups:
        return groups if common == groups else None
    return (common & groups) or None
