"""Write guards: limits over several objects (quotas, device capacity) that no write may exceed.

A guard counts stored objects and holds for writes in progress. A hold counts at once, so that two writes that fit alone but not
together cannot both pass. It is released if the write fails, and becomes the stored object if it succeeds. If the outcome is not
known (the store did not answer, the client left), the hold counts until the store has settled the write: see `GuardedView`.

Several servers on one store: every guarded write has a fence, so that it fails if another server has made one that this server did not
count. The server then counts and decides again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from dralloc.kube.meta_v1 import ApiObject
from dralloc.primitives.errors import ApiError
from dralloc.server.read.store_view import StoreView
from dralloc.server.store.errors import FenceMoved, KeyExists, RevisionConflict, ValueTooLarge
from dralloc.server.store.interface import Fence, Store
from dralloc.server.store.records import Record, StoreEvent

T = TypeVar("T")
LedgerT = TypeVar("LedgerT", bound="GuardLedger[Any]")

# Errors of a write that was certainly not stored. After any other one, a cancellation included, it may be stored now or later.
NOTHING_STORED: Final = (KeyExists, RevisionConflict, FenceMoved, ValueTooLarge, ApiError)


class Hold(Protocol):
    """What a guard counts for one write in progress."""

    @property
    def fences(self) -> Sequence[Fence]:
        """The conditions under which the write may be stored."""

    def keep(self, revision: int) -> None:
        """Count the write as stored at this revision."""

    def release(self) -> None:
        """Stop to count: nothing was stored."""

    def doubt(self) -> None:
        """Count until the store settles whether the write was stored."""


class WriteGuard(Protocol):
    """Refuses writes that would exceed a limit."""

    async def hold(self, key: str, new: ApiObject, old: ApiObject | None) -> Hold | None:
        """Count the write, or refuse it. `None` if it counts for nothing."""


class Holds:
    """Several holds of one write. At the end of the block they are released, unless the write was or may have been stored."""

    def __init__(self, holds: Sequence[Hold]) -> None:
        self._holds = holds

    @property
    def fences(self) -> Sequence[Fence]:
        return [fence for hold in self._holds for fence in hold.fences]

    def keep(self, revision: int) -> None:
        for hold in self._holds:
            hold.keep(revision)
        self._holds = ()

    def release(self) -> None:
        for hold in self._holds:
            hold.release()
        self._holds = ()

    def doubt(self) -> None:
        for hold in self._holds:
            hold.doubt()
        self._holds = ()

    def __enter__(self) -> Holds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, NOTHING_STORED):
            self.release()
        else:
            self.doubt()


async def hold_all(guards: Sequence[WriteGuard], key: str, new: ApiObject, old: ApiObject | None) -> Holds:
    """Ask every guard; if one refuses, the holds of the others are released."""
    holds: list[Hold] = []
    try:
        for guard in guards:
            hold = await guard.hold(key, new, old)
            if hold is not None:
                holds.append(hold)
    except BaseException:
        Holds(holds).release()
        raise
    return Holds(holds)


class GuardLedger(Generic[T]):
    """The counted values of stored objects and of holds: a derived index (see `store_view`).

    `read` returns what a stored object counts for, `None` for nothing. `add` is called with each value that starts (1) or stops (-1)
    to count, and keeps the sums.
    """

    def __init__(self, read: Callable[[Record], T | None], add: Callable[[T, int], None]) -> None:
        self._read = read
        self._add = add
        # By key, with the revision that it was stored at.
        self._stored: dict[str, tuple[int, T]] = {}
        self._held: dict[str, list[T]] = {}
        # The view has delivered every change up to this revision; later writes are known from their holds.
        self._delivered = 0

    def keys_where(self, matches: Callable[[T], bool]) -> Iterable[str]:
        """Keys of stored objects and of holds whose value matches."""
        yield from (key for key, (_, value) in self._stored.items() if matches(value))
        yield from (key for key, values in self._held.items() if any(map(matches, values)))

    def find(self, key: str) -> T | None:
        """The value of the stored object, or of a write in progress."""
        if key in self._stored:
            return self._stored[key][1]
        return self._held[key][-1] if key in self._held else None

    def replace(self, earlier: Self, revision: int) -> None:
        """Take over the holds, and writes that are known from their holds only."""
        self._delivered = revision
        for key, (known_at, value) in earlier._stored.items():
            if known_at > revision:
                self._set(key, known_at, value)
        self._held = earlier._held
        for values in self._held.values():
            for value in values:
                self._add(value, 1)

    def learn(self, record: Record) -> None:
        self._learn(record.key, record.revision, record)

    def apply(self, event: StoreEvent) -> None:
        self._learn(event.key, event.revision, event.record)
        self._delivered = event.revision

    @property
    def holds_any(self) -> bool:
        return bool(self._held)

    def hold(self, key: str, value: T) -> None:
        self._held.setdefault(key, []).append(value)
        self._add(value, 1)

    def settle(self, key: str, value: T, revision: int | None) -> None:
        """End a hold; with a revision, its value is stored at that revision."""
        held = self._held[key]
        held.remove(value)
        if not held:
            del self._held[key]
        if revision is not None and revision > self._delivered and self._is_newer(key, revision):
            # The hold's value counts already.
            self._set(key, 0, None)
            self._stored[key] = (revision, value)
        else:
            self._add(value, -1)

    def _learn(self, key: str, revision: int, record: Record | None) -> None:
        if self._is_newer(key, revision):
            self._set(key, revision, self._read(record) if record is not None else None)

    def _is_newer(self, key: str, revision: int) -> bool:
        return key not in self._stored or self._stored[key][0] < revision

    def _set(self, key: str, revision: int, value: T | None) -> None:
        _, before = self._stored.pop(key, (0, None))
        if value is not None:
            self._stored[key] = (revision, value)
        # Most changes of an object, such as reports of its node, change nothing of what it counts for.
        if before == value:
            return
        if before is not None:
            self._add(before, -1)
        if value is not None:
            self._add(value, 1)


class GuardedView(Generic[LedgerT, T]):
    """A ledger of the objects under a prefix that is up to date, and the fence of the writes that are decided with it."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        make: Callable[[], LedgerT],
        *,
        fence: str,
        follows: GuardedView[Any, Any] | None = None,
    ) -> None:
        self._store = store
        followed: StoreView[Any] | None = follows._view if follows is not None else None
        self._view: StoreView[LedgerT] = StoreView(store, (prefix,), make, follows=followed)
        self._fence = fence
        # The token of our last write with the fence, and its revision; without one, the next write takes the fence over.
        self._token: bytes | None = None
        self._token_revision = 0
        self._taking_over: asyncio.Future[None] | None = None
        # Holds of writes whose outcome is not known.
        self._doubted: dict[_FenceHold[LedgerT, T], None] = {}

    @property
    def ledger(self) -> LedgerT:
        return self._view.index

    async def ready(self) -> None:
        """Wait until the ledger has every change that was acknowledged, and no write is in doubt. The caller then decides at once."""
        while True:
            await self._view.ready()
            if self._doubted:
                await self._settle()
            elif self._taking_over is not None:
                await asyncio.wait((self._taking_over,))
            else:
                return

    @property
    def is_unsettled(self) -> bool:
        """True if a write is in doubt, or takes the fence over: nothing can be decided."""
        return bool(self._doubted) or self._taking_over is not None

    def hold(self, key: str, value: T) -> _LedgerHold[LedgerT, T]:
        """Count the value of the object for a write in progress."""
        self.ledger.hold(key, value)
        return _LedgerHold(self, self._next_fence(), key, value)

    def hold_fence(self, end: Callable[[], None]) -> Hold:
        """Hold a write that counts for nothing here; `end` is called when its outcome is known."""
        return _FenceHold(self, self._next_fence(), end)

    def _next_fence(self) -> Fence:
        if self._token is not None:
            return Fence(name=self._fence, token=self._token)
        assert self._taking_over is None, "others wait until the fence is taken over"
        self._taking_over = asyncio.get_running_loop().create_future()
        return Fence(name=self._fence, token=_new_token(), seen=self._view.revision)

    def end(self, fence: Fence, revision: int | None) -> None:
        """The write with the fence is stored at the revision, or has failed."""
        if fence.seen is not None and self._taking_over is not None:
            self._taking_over.set_result(None)
            self._taking_over = None
        if revision is not None:
            self._take_over(fence.token, revision)
        elif fence.token == self._token:
            # Taking over again costs little, so the reason of the failure does not matter.
            self._token = None

    def doubt(self, hold: _FenceHold[LedgerT, T]) -> None:
        """The outcome of the write is not known."""
        self._doubted[hold] = None

    async def stop(self) -> None:
        await self._view.stop()

    async def _settle(self) -> None:
        doubted, token = tuple(self._doubted), _new_token()
        revision = await self._store.settle(self._fence, token)
        await self._view.ready(revision)
        self._take_over(token, revision)
        # The ledger has those that were stored. Another task may have settled the same ones.
        for hold in doubted:
            if hold in self._doubted:
                del self._doubted[hold]
                hold.stop_counting()

    def _take_over(self, token: bytes, revision: int) -> None:
        if revision > self._token_revision:
            self._token, self._token_revision = token, revision


async def all_ready(views: Sequence[GuardedView[Any, Any]]) -> None:
    """Wait until all of them are ready at the same time. The caller then decides at once."""
    while True:
        for view in views:
            await view.ready()
        # Writes with the first ones may have begun while the last one was awaited.
        if not any(view.is_unsettled for view in views):
            return


class _FenceHold(Generic[LedgerT, T]):
    def __init__(self, view: GuardedView[LedgerT, T], fence: Fence, stop_counting: Callable[[], None]) -> None:
        self._fence = fence
        self.stop_counting = stop_counting
        self._view = view

    @property
    def fences(self) -> Sequence[Fence]:
        return (self._fence,)

    def keep(self, revision: int) -> None:
        self.stop_counting()
        self._view.end(self._fence, revision)

    def release(self) -> None:
        self.stop_counting()
        self._view.end(self._fence, None)

    def doubt(self) -> None:
        self._view.end(self._fence, None)
        self._view.doubt(self)


class _LedgerHold(_FenceHold[LedgerT, T]):
    def __init__(self, view: GuardedView[LedgerT, T], fence: Fence, key: str, value: T) -> None:
        super().__init__(view, fence, lambda: view.ledger.settle(key, value, None))
        self._key, self._value = key, value

    def keep(self, revision: int) -> None:
        self._view.ledger.settle(self._key, self._value, revision)
        self._view.end(self._fence, revision)


def _new_token() -> bytes:
    return os.urandom(16)
