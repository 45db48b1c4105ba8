"""The reasons of events on claims, in the order of a claim's life. Kubernetes has one of them: FailedScheduling, on pods."""

from __future__ import annotations

from typing import Final

CREATED: Final = "Created"
# A pod that uses the claim cannot be scheduled.
WAITS: Final = "FailedScheduling"
ALLOCATED: Final = "Allocated"
RESERVED: Final = "Reserved"
RELEASED: Final = "Released"
DEALLOCATED: Final = "Deallocated"
DELETED: Final = "Deleted"
