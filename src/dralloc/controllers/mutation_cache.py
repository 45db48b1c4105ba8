"""A cache of our own writes in front of an informer, like client-go's MutationCache.

Right after a write the informer still has the old object, and planning from it would repeat the write. The written
object is returned until the informer has caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Generic, TypeVar

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.typed_resource import Object, ObjectKey, TypedResource, key_of
from dralloc.primitives.errors import NotFound

# A written object that the informer never shows was deleted before the informer saw it.
KEPT_S: Final = 30.0


class MutationCache(Generic[Object]):
    """Returns the newer of the informed and the written object."""

    def __init__(self, informer: Informer[Object]) -> None:
        self._informer = informer
        # With the time until which each is kept, the earliest first.
        self._written: dict[ObjectKey, tuple[Object, float]] = {}
        informer.subscribe(self._learn)

    def get(self, name: str, namespace: str = "") -> Object | None:
        written = self._written.get(ObjectKey(namespace, name))
        if written is not None and written[1] > asyncio.get_running_loop().time():
            return written[0]
        return self._informer.get(name, namespace)

    def keep(self, item: Object) -> None:
        """Remember an object that was read, or the answer to a write, unless the informer has it already."""
        key, known = key_of(item), self._informer.get(item.metadata.name, item.metadata.namespace)
        if not _is_removed(item) and (known is None or _revision(known) < _revision(item)):
            now_s = asyncio.get_running_loop().time()
            self._drop_old(now_s)
            self._written.pop(key, None)
            self._written[key] = (item, now_s + KEPT_S)

    def _drop_old(self, now_s: float) -> None:
        while self._written:
            oldest, (_, until_s) = next(iter(self._written.items()))
            if until_s > now_s:
                return
            del self._written[oldest]

    def _learn(self, before: Object | None, after: Object | None) -> None:
        current = after if after is not None else before
        assert current is not None, "a change has an object"
        if not self._written:
            return
        key = key_of(current)
        written = self._written.get(key)
        if written is not None and (after is None or _revision(after) >= _revision(written[0])):
            del self._written[key]


def _is_removed(item: Object) -> bool:
    """True for the answer to a write that has removed the object. The informer may have shown that before the answer came."""
    metadata = item.metadata
    is_deleted = metadata.deletion_timestamp is not None
    return is_deleted and not metadata.finalizers and not metadata.deletion_grace_period_seconds


def _revision(item: Object) -> int:
    """Kubernetes guarantees that resource versions of one kind can be compared as numbers."""
    return int(item.metadata.resource_version or 0)


# --- Unconfirmed owners ---------------------------------------------------------------------------------------------
# Owners that may be gone although their informer still shows them: something of theirs was deleted.
#
# The server collects what a gone owner has as garbage. A controller that created it again, because of its deletion,
# would do so until its informer shows that the owner is gone, thousands of times. It asks the server first.


# When to plan for an owner again that was gone: nothing changes if a server was asked that has not caught up, or does not serve the kind.
LOOK_AGAIN_S: Final = 60.0

Key = TypeVar("Key", bound=Hashable)


class UnconfirmedOwners(Generic[Key]):
    """`is_gone` asks the server."""

    def __init__(self, is_gone: Callable[[Key], Awaitable[bool]]) -> None:
        self._is_gone = is_gone
        self._owners: set[Key] = set()

    def add(self, owner: Key) -> None:
        """Something of an owner that is shown was deleted. Each owner must be removed when it is shown no longer."""
        self._owners.add(owner)

    def remove(self, owner: Key) -> None:
        self._owners.discard(owner)

    async def may_create(self, owner: Key) -> bool:
        """False if the owner is gone: the informer is going to show it, but see `LOOK_AGAIN_S`."""
        if owner in self._owners and await self._is_gone(owner):
            return False
        self._owners.discard(owner)
        return True


async def is_gone(calls: ApiCalls, resource: TypedResource[Any], key: ObjectKey, uid: str) -> bool:
    """True if the server does not have the object with this UID."""
    try:
        live = await calls.get(resource, key)
    except NotFound:
        return True
    return bool(live.metadata.uid != uid)
