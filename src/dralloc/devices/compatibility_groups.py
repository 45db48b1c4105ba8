"""Compatibility groups: which devices may draw from one counter set at the same time.

Devices that declare groups go together as long as one group is common to all of them; devices that declare none go with
their like only.
"""

from __future__ import annotations

# The groups that are common to all devices so far. Empty where these declared none.
Groups = frozenset[str]


def admit(common: Groups | None, groups: Groups) -> Groups | None:
    """What is common to all once a device of these groups is among them, or None where it may not be.

    `common` is None where no device draws from the set yet.
    """
    if common is None:
        return groups
    if not common or not groups:
        return groups if common == groups else None
    return (common & groups) or None
