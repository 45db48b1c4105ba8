"""Objects that a server sends and that our types cannot decode: each is left out and reported, and all others are read.

Our server stores no such object. Another server may have one of a future version, or one from before it checked types.
"""

from __future__ import annotations

import logging
from typing import Final

from dralloc.primitives.errors import ApiError
from dralloc.primitives.metrics import CounterMetric

_logger = logging.getLogger(__name__)

# Of all that this process reads.
UNREADABLE_OBJECTS: Final = CounterMetric(
    "client_unreadable_objects_total",
    "Objects of the API server that could not be decoded and were left out, each time one was read.",
    ("resource",),
)


class UnreadableObject(ApiError):
    """An object that cannot be decoded; `resource`, `namespace` and `name` say which."""

    def __init__(self, resource: str, namespace: str, name: str, why: Exception) -> None:
        shown = f"{namespace}/{name}" if namespace else name
        super().__init__(f"{resource} {shown} cannot be read: {why}")
        self.resource, self.namespace, self.name = resource, namespace, name


def report_unreadable(problem: UnreadableObject) -> None:
    """Logs and counts an object that is left out."""
    UNREADABLE_OBJECTS.add(problem.resource)
    _logger.warning("%s; it is left out", problem)
