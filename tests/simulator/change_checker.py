"""What the checkers of stored objects have in common: they follow every committed change, and start over after a restore."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

import msgspec

from tests.simulator.documents import Document
from tests.simulator.history import CommittedChange

CLAIMS: Final = "/registry/resourceclaims.resource.k8s.io/"
PODS: Final = "/registry/pods/"


class ChangeChecker(ABC):
    def __init__(self) -> None:
        self.violations: list[str] = []
        self._forget()

    @abstractmethod
    def _forget(self) -> None:
        """Know no object."""

    @abstractmethod
    def on_change(self, change: CommittedChange) -> None:
        """Apply a change and check all that depends on it."""

    def reset(self, state: Iterable[CommittedChange]) -> None:
        """Start over with the objects of a back-up. They do not come in the order of their writes: what is found meanwhile does not count."""
        violations, self.violations = self.violations, []
        self._forget()
        for change in state:
            self.on_change(change)
        self.violations = violations


def stored_document(change: CommittedChange) -> Document | None:
    """None if the object was deleted."""
    return None if change.value is None else msgspec.json.decode(change.value)


def put(known: dict[str, Document], key: str, stored: Document | None) -> None:
    """The object as the newest of `known`; removed if it was deleted."""
    known.pop(key, None)
    if stored is not None:
        known[key] = stored
