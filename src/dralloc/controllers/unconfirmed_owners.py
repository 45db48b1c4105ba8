"""Owners that may be gone although their informer still shows them: something of theirs was deleted.

The server collects what a gone owner has as garbage. A controller that created it again, because of its deletion, would do so until its
informer shows that the owner is gone, thousands of times. It asks the server first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Generic, TypeVar

from dralloc.client.api_calls import ApiCalls
from dralloc.client.typed_resource import ObjectKey, TypedResource
from dralloc.primitives.errors import NotFound

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
