"""Field sets as plain sets of paths, for comparison."""

from __future__ import annotations

from dralloc.server.documents.owned_fields import SELF, FieldSet

Path = tuple[str, ...]


def members(fields: FieldSet, prefix: Path = ()) -> set[Path]:
    """The set as plain paths, by the definition of FieldsV1 alone."""
    found: set[Path] = set()
    for element, below in fields.items():
        if element == SELF:
            found.add(prefix)
        elif not below:
            found.add((*prefix, element))
        else:
            found |= members(below, (*prefix, element))
    return found
