"""The claims of this node: the records of the checkpoint, and the progress of this process with each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.resource_v1 import AllocationResult
from dralloc.node.checkpoint import CheckpointWriter, ClaimRecord, read_checkpoint


@dataclass(frozen=True, slots=True)
class ClaimEntry:
    """A record and the progress of this process. After a restart nothing counts as prepared: drivers are called again."""

    record: ClaimRecord
    # The allocation that was prepared, if this process called the drivers.
    allocation: AllocationResult | None = None
    is_prepared: bool = False
    is_unpreparing: bool = False


class ClaimCache:
    """Entries by claim, read from the checkpoint. A change is durable once `save` has returned."""

    def __init__(self, path: Path) -> None:
        self._entries = {
            ObjectKey(record.namespace, record.name): ClaimEntry(record) for record in read_checkpoint(path)
        }
        self._by_pod: dict[str, set[ObjectKey]] = {}
        for key, entry in self._entries.items():
            self._index(key, frozenset(), entry.record.pods)
        self._checkpoint = CheckpointWriter(path, self.records)
        self._locks = _ClaimLocks()

    def records(self) -> tuple[ClaimRecord, ...]:
        return tuple(entry.record for entry in self._entries.values())

    def get(self, key: ObjectKey) -> ClaimEntry | None:
        return self._entries.get(key)

    def of_pod(self, pod_uid: str) -> Iterator[tuple[ObjectKey, ClaimEntry]]:
        """The claims that are prepared for the pod, completely or partly."""
        for key in sorted(self._by_pod.get(pod_uid, ()), key=str):
            yield key, self._entries[key]

    def pods(self) -> frozenset[str]:
        """The UIDs of all pods with such claims."""
        return frozenset(self._by_pod)

    def put(self, key: ObjectKey, entry: ClaimEntry) -> None:
        before = self._entries.get(key)
        self._index(key, before.record.pods if before is not None else frozenset(), entry.record.pods)
        self._entries[key] = entry

    def drop(self, key: ObjectKey) -> None:
        self._index(key, self._entries.pop(key).record.pods, frozenset())

    async def save(self) -> None:
        await self._checkpoint.save()

    async def lock(self, stack: AsyncExitStack, keys: list[ObjectKey]) -> None:
        """Hold the locks of these claims until the stack is closed."""
        # A fixed order prevents a deadlock of two pods with the same two claims.
        for key in sorted(set(keys), key=str):
            await stack.enter_async_context(self._locks.hold(key))

    def close(self) -> None:
        self._checkpoint.close()

    def _index(self, key: ObjectKey, before: frozenset[str], after: frozenset[str]) -> None:
        for pod_uid in before - after:
            keys = self._by_pod[pod_uid]
            keys.discard(key)
            if not keys:
                del self._by_pod[pod_uid]
        for pod_uid in after - before:
            self._by_pod.setdefault(pod_uid, set()).add(key)


class _ClaimLocks:
    """Locks that exist while a task holds them or waits for them."""

    def __init__(self) -> None:
        self._locks: dict[ObjectKey, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, key: ObjectKey) -> AsyncIterator[None]:
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
