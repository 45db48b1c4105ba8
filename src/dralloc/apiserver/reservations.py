"""Promises over several objects (quotas, the capacity of devices) that a write must not break.

A gatekeeper looks at what is stored and at what was promised to writes under way. What it promises counts at
once for everybody, so that two writes that fit one by one, but not together, cannot both pass; it is given back
if the write fails, and when it succeeds the stored object takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from dralloc.api.meta_v1 import ApiObject

GiveBack = Callable[[], None]


class Gatekeeper(Protocol):
    async def reserve(self, key: str, new: ApiObject, old: ApiObject | None) -> GiveBack | None:
        """Promise the write what it needs, or refuse it. `None`: it needs nothing."""


class Reservations:
    """What one write was promised: given back unless the write was stored."""

    def __init__(self, promises: Sequence[GiveBack]) -> None:
        self._promises = promises
        self._kept = False

    def keep(self) -> None:
        """The write is stored: from now on the gatekeepers see it there."""
        self._kept = True

    def __enter__(self) -> Reservations:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._kept:
            for give_back in self._promises:
                give_back()


_NOTHING = Reservations(())


async def reserve_all(
    gatekeepers: Sequence[Gatekeeper], key: str, new: ApiObject, old: ApiObject | None
) -> Reservations:
    """Ask every gatekeeper; if one refuses, what the others promised is given back."""
    if not gatekeepers:
        return _NOTHING
    promises: list[GiveBack] = []
    try:
        for gatekeeper in gatekeepers:
            give_back = await gatekeeper.reserve(key, new, old)
            if give_back is not None:
                promises.append(give_back)
    except BaseException:
        Reservations(promises).__exit__(None, None, None)
        raise
    return Reservations(promises)
