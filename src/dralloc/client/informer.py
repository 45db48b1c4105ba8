"""A local cache of the objects of one resource, with indexes and change handlers.

The cache is filled by a reflector. However often the connection breaks, a handler sees each change of an object once
and in order: an unchanged object in a new list is not a change, and an object missing from it is a deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from dralloc.client.typed_resource import Object, ObjectKey, key_of
from dralloc.primitives.new_history import HISTORY_GAP

T = TypeVar("T")
Index = Callable[[Object], Iterable[Hashable]]

# Called after the cache is updated: `before` is None for a new object, `after` for a deleted one.
Handler = Callable[[Object | None, Object | None], None]

# Called after a list replaced the contents, with the revision up to which the list is all that is true: what was learned from other
# answers at such revisions and is not in the list is gone.
ListHandler = Callable[[int], None]

# How many objects of a list are looked at before other tasks run.
TAKEN_AT_ONCE: Final = 500


class Informer(Generic[Object]):
    """The cache. Reads are immediate; `synced` is set after the first list."""

    def __init__(self, indices: Mapping[str, Index[Object]] | None = None) -> None:
        self._objects: dict[ObjectKey, Object] = {}
        self._indices = dict(indices or {})
        self._indexed: dict[str, dict[Hashable, dict[ObjectKey, Object]]] = {name: {} for name in self._indices}
        self._handlers: list[Handler[Object]] = []
        self._list_handlers: list[ListHandler] = []
        # The revision of the newest list or change.
        self.newest_revision = 0
        self.synced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, name: str, namespace: str = "") -> Object | None:
        return self._objects.get(ObjectKey(namespace, name))

    def all(self) -> tuple[Object, ...]:
        return tuple(self._objects.values())

    def by(self, index: str, value: Hashable) -> Collection[Object]:
        """Returns the objects with this value in the index: not a copy, because there may be thousands and most callers look
        at one. A caller that waits while it reads them copies them first.
        """
        bucket = self._indexed[index].get(value)
        return bucket.values() if bucket is not None else ()

    def values(self, index: str) -> tuple[Hashable, ...]:
        """Returns the values that some object has in the index."""
        return tuple(self._indexed[index])

    def subscribe(self, handler: Handler[Object]) -> None:
        """Calls the handler for every existing object, and for every change from now on."""
        self._handlers.append(handler)
        for item in self._objects.values():
            handler(None, item)

    def subscribe_to_lists(self, handler: ListHandler) -> None:
        """Calls the handler after every list from now on."""
        self._list_handlers.append(handler)

    # --- Fed by the reflector -------------------------------------------------------------------------------------

    async def take_list(self, items: Iterable[Object], *, revision: int = 0, kept: Collection[ObjectKey] = ()) -> None:
        """As `replace`, in pieces: there may be hundreds of thousands of objects, and watches must be answered meanwhile.

        Readers wait for the whole first list, so that its objects are put one after the other. What a later list changes is found in
        pieces, and changed at once.
        """
        is_first = not self.synced.is_set()
        listed: set[ObjectKey] = set()
        changed: list[Object] = []
        async for item in _in_turns(items):
            listed.add(key_of(item))
            if is_first:
                self.put(item)
            elif self._is_news(item):
                changed.append(item)
        gone = [key async for key in _in_turns(tuple(self._objects)) if key not in listed and key not in kept]
        self._end_list(changed, gone, revision)

    def replace(self, items: Iterable[Object], *, revision: int = 0, kept: Collection[ObjectKey] = ()) -> None:
        """Replaces the contents with this list, which is the truth up to the revision. Objects that exist and cannot be read are
        `kept` as they were.
        """
        listed = {key_of(item): item for item in items}
        gone = [key for key in self._objects if key not in listed and key not in kept]
        self._end_list(listed.values(), gone, revision)

    def _is_news(self, item: Object) -> bool:
        known = self._objects.get(key_of(item))
        return known is None or known.metadata.resource_version != item.metadata.resource_version

    def _end_list(self, changed: Iterable[Object], gone: Iterable[ObjectKey], revision: int) -> None:
        for key in gone:
            self.remove(key)
        for item in changed:
            self.put(item)
        for handler in self._list_handlers:
            handler(revision)
        self.synced.set()

    def put(self, item: Object) -> None:
        key = key_of(item)
        before = self._objects.get(key)
        if before is not None and before.metadata.resource_version == item.metadata.resource_version:
            return
        if before is not None and before.metadata.uid != item.metadata.uid:
            # Deleted and created again between two lists: two changes, not one.
            self.remove(key)
            before = None
        self._objects[key] = item
        self._reindex_and_tell(key, before, item)

    def remove(self, key: ObjectKey) -> None:
        before = self._objects.pop(key, None)
        if before is not None:
            self._reindex_and_tell(key, before, None)

    def _reindex_and_tell(self, key: ObjectKey, before: Object | None, after: Object | None) -> None:
        for name, index in self._indices.items():
            buckets = self._indexed[name]
            kept = frozenset(index(after)) if after is not None else frozenset()
            # An index may return a value twice: a pod can use one claim under two names.
            for value in frozenset(index(before)) - kept if before is not None else ():
                bucket = buckets[value]
                del bucket[key]
                if not bucket:
                    del buckets[value]
            for value in kept:
                buckets.setdefault(value, {})[key] = after  # type: ignore[assignment]
        for handler in self._handlers:
            handler(before, after)


async def _in_turns(values: Iterable[T]) -> AsyncIterator[T]:
    """The values; other tasks run after some of them."""
    for number, value in enumerate(values, 1):
        yield value
        if number % TAKEN_AT_ONCE == 0:
            await asyncio.sleep(0)


# --- Known history --------------------------------------------------------------------------------------------------
# Whether the answers of an API server are of one history of its store: after a backup was restored, they are of
# another one.
#
# What a component knows and has planned is then of objects that never were, so it ends, and starts again from what
# the server has.


# Two lists that are further apart are of two histories: a restored store goes on at much higher revisions, as does an etcd that was
# restored with the `--bump-revision` of etcd's guide. No client is away while a store writes that often.
HISTORY_STEP: Final = HISTORY_GAP // 2


class HistoryChanged(Exception):
    """A list shows that the store of the API server was restored from a backup. A component that reads it starts again, with new objects."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after)
        self._before, self._after = before, after

    def __str__(self) -> str:
        return f"the API server was restored from a backup: it was at revision {self._before}, and now lists at {self._after}"


class KnownHistory:
    """What the lists and watches of one client have shown of the history."""

    def __init__(self) -> None:
        self._newest = 0

    def reach(self, revision: int) -> None:
        if revision > self._newest:
            self._newest = revision

    def check(self, revision: int, *, seen: int) -> None:
        """Take the revision of a list; `seen` is the newest one that its reader has seen before, or 0. Raises HistoryChanged."""
        before, self._newest = self._newest, max(revision, self._newest)
        if seen and not 0 <= revision - seen < HISTORY_STEP:
            raise HistoryChanged(seen, revision)
        # Lists of others may have been answered later, so that they do not show that revisions went back.
        if before and revision - before >= HISTORY_STEP:
            raise HistoryChanged(before, revision)


def history_change(error: BaseException) -> HistoryChanged | None:
    """The HistoryChanged that has ended a component, alone or in groups of tasks; None if there were other reasons."""
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, HistoryChanged) else None
    found = [history_change(each) for each in error.exceptions]
    return found[0] if all(found) else None
