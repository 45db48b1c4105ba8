"""The members of a claim's status that a deallocation clears."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# As a merge patch of `status`. Reservations and device statuses have no meaning without an allocation.
DEALLOCATED: Final[Mapping[str, None]] = {"allocation": None, "reservedFor": None, "devices": None}
