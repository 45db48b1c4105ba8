"""Which objects depend on which owners, and which owners wait for them. Each change costs as much as the object has owners."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple


class OwnerId(NamedTuple):
    """Users write references, so a UID alone proves nothing: it could be that of an object of another namespace."""

    key: str
    uid: str


class DependentIndex:
    """Dependents by owner, and owners by dependent."""

    def __init__(self) -> None:
        # The keys of an owner's dependents, ordered so that runs are deterministic, each with whether it blocks the owner's deletion.
        self._of_owner: dict[OwnerId, dict[str, bool]] = {}
        self._of_dependent: dict[str, tuple[OwnerId, ...]] = {}
        # How many dependents block the owner's deletion, where there are any.
        self._blocking: dict[OwnerId, int] = {}

    def __bool__(self) -> bool:
        return bool(self._of_owner)

    def clear(self) -> None:
        self._of_owner.clear()
        self._of_dependent.clear()
        self._blocking.clear()

    def put(self, key: str, owners: Iterable[tuple[OwnerId, bool]]) -> list[OwnerId]:
        """Set the owners of an object, each with whether the object blocks its deletion. Returns the owners that nothing blocks since."""
        before = self._of_dependent.pop(key, ())
        blocked = [owner for owner in before if owner in self._blocking] if self._blocking else []
        for owner in before:
            self._remove(key, owner)
        entries = dict(owners)
        for owner, blocks in entries.items():
            self._of_owner.setdefault(owner, {})[key] = blocks
            if blocks:
                self._blocking[owner] = self._blocking.get(owner, 0) + 1
        if entries:
            self._of_dependent[key] = tuple(entries)
        return [owner for owner in blocked if owner not in self._blocking]

    def of(self, owner: OwnerId) -> Collection[str]:
        """The keys of the owner's dependents: not a copy, because there may be thousands."""
        return self._of_owner.get(owner, {}).keys()

    def is_blocked(self, owner: OwnerId) -> bool:
        return owner in self._blocking

    def _remove(self, key: str, owner: OwnerId) -> None:
        keys = self._of_owner[owner]
        if keys.pop(key):
            self._blocking[owner] -= 1
            if not self._blocking[owner]:
                del self._blocking[owner]
        if not keys:
            del self._of_owner[owner]
