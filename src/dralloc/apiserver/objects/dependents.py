"""Which objects depend on which owners, and which owners wait for them. Each change costs as much as the object has owners."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class OwnerId(NamedTuple):
    """Users write references, so a UID alone proves nothing: it could be that of an object of another namespace."""

    key: str
    uid: str


@dataclass(slots=True)
class _Dependents:
    """Of one owner: the keys of its dependents, ordered so that runs are deterministic, and how many block its deletion."""

    owner: OwnerId
    keys: dict[str, bool] = field(default_factory=dict)
    blocking: int = 0


class DependentIndex:
    """Dependents by owner, and owners by dependent."""

    def __init__(self) -> None:
        self._of_owner: dict[OwnerId, _Dependents] = {}
        self._of_dependent: dict[str, tuple[_Dependents, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._of_owner)

    def clear(self) -> None:
        self._of_owner.clear()
        self._of_dependent.clear()

    def put(self, key: str, owners: Iterable[tuple[OwnerId, bool]]) -> list[OwnerId]:
        """Set the owners of an object, each with whether the object blocks its deletion. Returns the owners that nothing blocks since."""
        before = self._of_dependent.pop(key, ())
        blocked = [dependents for dependents in before if dependents.blocking]
        for dependents in before:
            dependents.blocking -= dependents.keys.pop(key)
        entries = dict(owners)
        if entries:
            self._of_dependent[key] = tuple(self._add(key, owner, blocks) for owner, blocks in entries.items())
        for dependents in before:
            if not dependents.keys:
                self._of_owner.pop(dependents.owner, None)
        return [dependents.owner for dependents in blocked if not dependents.blocking]

    def of(self, owner: OwnerId) -> Collection[str]:
        """The keys of the owner's dependents: not a copy, because there may be thousands."""
        dependents = self._of_owner.get(owner)
        return dependents.keys.keys() if dependents is not None else ()

    def is_blocked(self, owner: OwnerId) -> bool:
        dependents = self._of_owner.get(owner)
        return dependents is not None and dependents.blocking > 0

    def _add(self, key: str, owner: OwnerId, blocks: bool) -> _Dependents:
        dependents = self._of_owner.get(owner)
        if dependents is None:
            dependents = self._of_owner[owner] = _Dependents(owner)
        dependents.keys[key] = blocks
        dependents.blocking += blocks
        return dependents
