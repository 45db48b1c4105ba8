"""The one interface of all stores: revisioned bytes under string keys.

Every successful write takes the next revision of the whole store, so a revision names one state of all keys. Readers see a
write once it is acknowledged and never before. An empty store is at revision 1; 0 names no state. Keys are paths: they start
with a slash.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec

from dralloc.store.errors import BadPageToken
from dralloc.store.records import Record, StoreEvent

FIRST_REVISION = 1
"""The revision of a store that was never written to."""


class PageToken(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the next page starts: after a key (relative to the prefix that is listed), at a revision (0: the newest)."""

    revision: int
    start_after: str
    remaining: int
    """Records from here on, so that no page has to count them again."""

    def encode(self) -> str:
        """The token as text that may travel in a URL."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> PageToken:
        """The token that `encode` made the text of; clients may send anything."""
        try:
            token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=PageToken)
        except (binascii.Error, ValueError) as error:
            raise BadPageToken("not a page token") from error
        if token.revision < 0 or token.remaining < 0:
            raise BadPageToken("not a page token: numbers out of range")
        return token

    def at_newest(self) -> PageToken:
        """The same place in the newest state: a way on for a reader whose revision is compacted."""
        return msgspec.structs.replace(self, revision=0)


class Page(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Records in the order of their keys, all as they were at `revision`."""

    records: Sequence[Record]
    revision: int
    next: PageToken | None = None
    """None on the last page."""

    @property
    def remaining(self) -> int:
        """How many records the pages after this one hold."""
        return self.next.remaining if self.next else 0


class HistoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the past is kept for watches that resume and for pages of one listing.

    Sizes, not times: the memory and the disk that history takes are bounded whatever the write rate and the clock do.
    """

    events_max: int = 100_000
    bytes_max: int = 64 << 20


class Watch(ABC):
    """Changes of the keys under a prefix: in order, each once, none left out. One task reads it."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """Every change up to this revision was returned by `next`: what a bookmark may say."""

    @abstractmethod
    async def next(self, *, limit: int = 1000, timeout_s: float | None = None) -> Sequence[StoreEvent]:
        """The next changes, at least one; none when the time is up. Cancelling it loses nothing.

        WatcherTooSlow, Compacted or StoreUnavailable end the watch.
        """

    @abstractmethod
    def close(self) -> None:
        """Frees what the watch holds; may be repeated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Store(ABC):
    """Revisioned bytes with compare-and-swap. Belongs to the event loop that opened it."""

    @abstractmethod
    async def current_revision(self) -> int:
        """The newest revision, at least that of every write acknowledged before the call."""

    @abstractmethod
    async def get(self, key: str) -> Record | None:
        """The newest record of a key."""

    @abstractmethod
    async def list_prefix(
        self, prefix: str, *, revision: int | None = None, limit: int | None = None, page: PageToken | None = None
    ) -> Page:
        """Records under a prefix, now or at a revision; `page` goes on where, and at the revision that, it says.

        Raises Compacted and FutureRevision.
        """

    @abstractmethod
    async def create(self, key: str, value: bytes) -> Record:
        """Writes a key that must not exist; raises KeyExists."""

    @abstractmethod
    async def update(self, key: str, value: bytes, *, expected_revision: int) -> Record:
        """Replaces the record that was written at that revision; raises RevisionConflict."""

    @abstractmethod
    async def delete(self, key: str, *, expected_revision: int) -> int:
        """Deletes the record that was written at that revision and returns the revision of the deletion; raises RevisionConflict."""

    @abstractmethod
    async def watch(self, prefix: str, *, after_revision: int) -> Watch:
        """Every change under a prefix after a revision, which may lie ahead; raises Compacted."""

    @abstractmethod
    async def compact(self, revision: int) -> None:
        """Forgets states before a revision: they, and watches from before it, are Compacted from then on.

        A revision that is compacted already changes nothing. Raises FutureRevision.
        """

    @abstractmethod
    async def close(self) -> None:
        """Ends writes under way and all watches; may be repeated."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
