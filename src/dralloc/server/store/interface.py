"""The interface of all stores: revisioned bytes under string keys.

Every successful write takes the next revision of the whole store, so a revision identifies one state of all keys.
Readers see a write once it is acknowledged and never before. An empty store is at revision 1; 0 is no revision. Keys
are paths: they start with a slash.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec

from dralloc.primitives.decoders import UNREADABLE
from dralloc.server.store.errors import BadPageToken, StoreError
from dralloc.server.store.records import Record, StoreEvent

FIRST_REVISION = 1
"""The revision of a store without writes."""


class PageToken(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the next page starts: after a key (relative to the listed prefix), at a revision (0: the newest)."""

    revision: int
    start_after: str
    remaining: int
    """Number of records from here on, so that pages need not count again."""

    def encode(self) -> str:
        """Returns the token as URL-safe text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> PageToken:
        """Decodes the text of a token; clients may send anything."""
        try:
            token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=PageToken)
        except (*UNREADABLE, ValueError) as error:
            raise BadPageToken("not a page token") from error
        if token.revision < 0 or token.remaining < 0:
            raise BadPageToken("not a page token: numbers out of range")
        return token


class Page(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Records ordered by key, all as of `revision`."""

    records: Sequence[Record]
    revision: int
    next: PageToken | None = None
    """None on the last page."""

    @property
    def remaining(self) -> int:
        """The number of records on later pages."""
        return self.next.remaining if self.next else 0


class HistoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much history is kept for resumed watches and paged lists.

    Sizes, not times: the memory and disk for history are bounded whatever the write rate and the clock.
    """

    events_max: int = 100_000
    bytes_max: int = 64 << 20


class Fence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A condition of a write that was decided on what its writer had read and written before.

    Writes with fences of one name form a sequence. A write succeeds if the one before it has the same token, so it is by the same
    writer. With `seen`, it takes the sequence over: it succeeds if no write of the sequence is newer than that revision.
    """

    name: str
    token: bytes
    seen: int | None = None


class Watch(ABC):
    """Changes of the keys under a prefix: in order, exactly once, without gaps. Read by one task."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """Every change up to this revision was returned by `next`; the revision for a bookmark."""

    @abstractmethod
    async def next(self, *, limit: int = 1000, timeout_s: float | None = None) -> Sequence[StoreEvent]:
        """Returns the next changes, at least one; none on timeout. Safe to cancel.

        WatcherTooSlow, Compacted or StoreUnavailable end the watch.
        """

    @abstractmethod
    async def reach(self, revision: int) -> None:
        """Returns when `next` has every change up to the revision without waiting. Safe to cancel; raises as `next` does."""

    @abstractmethod
    def take(self, *, limit: int = 1000, bytes_max: int | None = None) -> Sequence[StoreEvent]:
        """Returns the changes that are there, without waiting: at most `limit`, and none after the one that reaches `bytes_max`.

        Raises what `next` raises.
        """

    @property
    @abstractmethod
    def has_more(self) -> bool:
        """True if there are changes to `take`."""

    @abstractmethod
    def on_change(self, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever there may be more to take. It must be short: many watches wake at once."""

    @abstractmethod
    def close(self) -> None:
        """Releases the watch; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Store(ABC):
    """Revisioned bytes with compare-and-swap. Belongs to the event loop that opened it.

    A write that ends with another error than KeyExists, RevisionConflict, FenceMoved or ValueTooLarge, or that is cancelled, may
    have happened, and may still happen after a read that does not show it. `settle` ends this for writes with a fence.
    """

    @property
    @abstractmethod
    def newest_seen(self) -> int:
        """The newest revision in any answer of the store: at least that of every write acknowledged before the last read began."""

    @property
    def failure(self) -> StoreError | None:
        """Why no write succeeds until the store is opened again."""
        return None

    @abstractmethod
    async def current_revision(self) -> int:
        """Returns the newest revision, at least that of every write acknowledged before the call."""

    @abstractmethod
    async def get(self, key: str) -> Record | None:
        """Returns the newest record of a key."""

    @abstractmethod
    async def list_prefix(
        self, prefix: str, *, revision: int | None = None, limit: int | None = None, page: PageToken | None = None
    ) -> Page:
        """Returns records under a prefix, now or at a revision; `page` continues at its position and revision.

        Raises Compacted and FutureRevision.
        """

    @abstractmethod
    async def create(
        self, key: str, value: bytes, *, fences: Sequence[Fence] = (), unchanged: Sequence[Record] = ()
    ) -> Record:
        """Writes a key that must not exist; raises KeyExists, or FenceMoved, also if an `unchanged` record of another key is not the
        newest one any more.
        """

    @abstractmethod
    async def update(self, key: str, value: bytes, *, expected_revision: int, fences: Sequence[Fence] = ()) -> Record:
        """Replaces the record that was written at that revision; raises RevisionConflict or FenceMoved."""

    @abstractmethod
    async def delete(self, key: str, *, expected_revision: int, fences: Sequence[Fence] = ()) -> int:
        """Deletes the record that was written at that revision and returns the deletion's revision; raises
        RevisionConflict or FenceMoved.
        """

    @abstractmethod
    async def settle(self, fence: str, token: bytes) -> int:
        """Takes over a fence; returns a revision after which no write of the name that began before this call takes effect."""

    @abstractmethod
    async def watch(self, prefix: str, *, after_revision: int) -> Watch:
        """Watches every change under a prefix after a revision; raises Compacted and FutureRevision.

        A revision that does not exist yet is one of another history, before a restore: waiting for it would hide changes.
        """

    @abstractmethod
    async def compact(self, revision: int) -> None:
        """Drops states before a revision: reads of them and watches from before it raise Compacted.

        A no-op if already compacted. Raises FutureRevision.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finishes pending writes and ends all watches; idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
