"""Watch streams: the initial state, then every change, until the timeout, a disconnect, or the end of the server.

The store delivers changes in order. Each change is rendered once for all watches of the same form. With a selector, an object that
starts to match is ADDED, and one that stops to match is DELETED.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from dralloc.apiserver.documents.protobuf_writer import UnencodableValue, watch_frame
from dralloc.apiserver.http.messages import JSON, PROTOBUF
from dralloc.apiserver.http.statuses import expired, status_of, version_too_large
from dralloc.apiserver.objects.record_lists import Selection, in_pieces, wait_for_revision
from dralloc.primitives.errors import ApiError, ResourceVersionTooLarge
from dralloc.store.errors import Compacted, FutureRevision, StoreUnavailable, WatcherTooSlow
from dralloc.store.interface import PageToken, Store, Watch
from dralloc.store.records import Record, StoreEvent

BOOKMARK_EVERY_S: Final = 60.0
TIMEOUT_MIN_S: Final = 1800
EVENTS_PER_PIECE: Final = 500
FRAMES_BYTES_MAX: Final = 16 << 20

ADDED: Final = b"ADDED"
MODIFIED: Final = b"MODIFIED"
DELETED: Final = b"DELETED"


class Frames(ABC):
    """The events of all watches of one form (such as a version, or its table) and encoding; each is rendered once."""

    content_type: ClassVar[str]

    def __init__(self, render: Callable[[bytes, int], bytes], bookmark: Callable[[int, bool], bytes]) -> None:
        self._render = render
        self._bookmark = bookmark
        self._made: dict[tuple[int, bytes], bytes] = {}
        self._bytes = 0

    def change(self, type_: bytes, stored: bytes, revision: int) -> bytes:
        frame = self._made.get((revision, type_))
        if frame is None:
            frame = self._made[(revision, type_)] = self.unshared(type_, stored, revision)
            self._bytes += len(frame)
            while self._bytes > FRAMES_BYTES_MAX:
                self._bytes -= len(self._made.pop(next(iter(self._made))))
        return frame

    def unshared(self, type_: bytes, stored: bytes, revision: int) -> bytes:
        return self.frame(type_, self._render(stored, revision))

    def bookmark(self, revision: int, *, initial_events_end: bool = False) -> bytes:
        return self.frame(b"BOOKMARK", self._bookmark(revision, initial_events_end))

    def error(self, error: ApiError) -> bytes:
        """The event that makes a client list again."""
        return self.frame(b"ERROR", msgspec.json.encode(status_of(error)))

    @staticmethod
    @abstractmethod
    def frame(type_: bytes, document: bytes) -> bytes:
        """An event with the object in JSON, encoded."""


class JsonFrames(Frames):
    content_type = JSON

    @staticmethod
    def frame(type_: bytes, document: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (type_, document)


class ProtobufFrames(Frames):
    content_type = f"{PROTOBUF};stream=watch"

    @staticmethod
    def frame(type_: bytes, document: bytes) -> bytes:
        decoded = msgspec.json.decode(document)
        try:
            return watch_frame(type_.decode(), decoded)
        except UnencodableValue as error:
            return watch_frame("ERROR", status_of(ApiError(f"cannot be written in protobuf: {error}")))


@dataclass(frozen=True, slots=True)
class WatchRequest:
    prefix: str
    selection: Selection
    after_revision: int
    # Send the current objects first.
    initial_state: bool = False
    # Mark the end of the initial state with a bookmark.
    initial_bookmark: bool = False
    bookmarks: bool = False
    timeout_s: int | None = None


class WatchTable:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[Watch, None] = {}
        self._ending = False

    def __len__(self) -> int:
        return len(self._open)

    def end_all(self) -> None:
        """End every watch, and every later one at once."""
        self._ending = True
        for watch in tuple(self._open):
            watch.close()

    async def stream(self, request: WatchRequest, frames: Frames) -> AsyncGenerator[bytes, None]:
        try:
            revision = request.after_revision
            if request.initial_state:
                if revision:
                    await wait_for_revision(self._store, revision)
                async for piece, at in self._initial_state(request, frames):
                    revision = at
                    if piece:
                        yield piece
            watch = await self._store.watch(request.prefix, after_revision=revision)
        except Compacted as error:
            yield frames.error(expired(f"too old resource version: {error.revision} ({error.compacted})"))
            return
        except FutureRevision as error:
            yield frames.error(version_too_large(error.revision, error.current))
            return
        except ResourceVersionTooLarge as error:
            yield frames.error(error)
            return
        self._open[watch] = None
        try:
            if not self._ending:
                async for piece in _changes(watch, request, frames):
                    yield piece
        finally:
            self._open.pop(watch, None)
            watch.close()

    async def _initial_state(self, request: WatchRequest, frames: Frames) -> AsyncGenerator[tuple[bytes, int], None]:
        """The current objects in pieces, each with its revision."""
        token: PageToken | None = None
        while True:
            page = await self._store.list_prefix(request.prefix, limit=EVENTS_PER_PIECE, page=token)
            matching = filter(request.selection.matches, page.records)
            for records in in_pieces(matching, lambda record: len(record.value)):
                told = [frames.unshared(ADDED, record.value, record.revision) for record in records]
                yield b"".join(told), page.revision
            token = page.next
            if token is None:
                break
            await asyncio.sleep(0)
        end = frames.bookmark(page.revision, initial_events_end=True) if request.initial_bookmark else b""
        yield end, page.revision


async def _changes(watch: Watch, request: WatchRequest, frames: Frames) -> AsyncGenerator[bytes, None]:
    loop = asyncio.get_running_loop()
    # Random, so that watches that started together do not all reconnect together.
    deadline = loop.time() + (request.timeout_s or random.uniform(TIMEOUT_MIN_S, 2 * TIMEOUT_MIN_S))
    bookmark_due = loop.time() + BOOKMARK_EVERY_S if request.bookmarks else deadline
    while True:
        try:
            due = min(deadline, bookmark_due)
            events = await watch.next(limit=EVENTS_PER_PIECE, timeout_s=max(due - loop.time(), 0))
        except (WatcherTooSlow, Compacted) as error:
            yield frames.error(expired(f"too old resource version: {error}"))
            return
        except StoreUnavailable:
            return
        for group in in_pieces(events, _weight):
            if piece := _tell(group, request.selection, frames):
                yield piece
        now = loop.time()
        if request.bookmarks and now >= due:
            yield frames.bookmark(watch.revision)
            bookmark_due = now + BOOKMARK_EVERY_S
        if now >= deadline:
            return


def _weight(event: StoreEvent) -> int:
    record = event.record or event.previous
    return len(record.value) if record else 0


def _tell(events: Sequence[StoreEvent], selection: Selection, frames: Frames) -> bytes:
    if selection.everything:
        return b"".join([_tell_plainly(event, frames) for event in events])
    return b"".join([_tell_selected(event, selection, frames) for event in events])


def _tell_plainly(event: StoreEvent, frames: Frames) -> bytes:
    if event.record is None:
        return frames.change(DELETED, _stored(event.previous), event.revision)
    return frames.change(MODIFIED if event.previous else ADDED, event.record.value, event.revision)


def _tell_selected(event: StoreEvent, selection: Selection, frames: Frames) -> bytes:
    was = event.previous is not None and selection.matches(event.previous)
    if event.record is not None and selection.matches(event.record):
        return frames.change(MODIFIED if was else ADDED, event.record.value, event.revision)
    return frames.change(DELETED, _stored(event.previous), event.revision) if was else b""


def _stored(record: Record | None) -> bytes:
    assert record is not None, "a deletion has a previous record"
    return record.value
