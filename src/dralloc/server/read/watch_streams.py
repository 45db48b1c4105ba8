"""Watch streams: the initial state, then every change, until the timeout, a disconnect, or the end of the server.

The store delivers changes in order. Each change is rendered once for all watches of the same form. With a selector, an object that
starts to match is ADDED, and one that stops to match is DELETED.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar, Final

import msgspec

from dralloc.kube.protobuf_writer import UnencodableValue, watch_frame
from dralloc.primitives.errors import ApiError, ResourceVersionTooLarge
from dralloc.server.http.messages import JSON, PROTOBUF, Sink
from dralloc.server.http.statuses import expired, status_of, version_too_large
from dralloc.server.read.record_lists import Selection, in_pieces, wait_for_revision
from dralloc.server.read.stored_form import read_document
from dralloc.server.store.errors import Compacted, FutureRevision, StoreError, StoreUnavailable, WatcherTooSlow
from dralloc.server.store.interface import PageToken, Store, Watch
from dralloc.server.store.records import Record, StoreEvent

BOOKMARK_EVERY_S: Final = 60.0
TIMEOUT_MIN_S: Final = 1800
EVENTS_PER_PIECE: Final = 500
# Events are delivered for so long in each turn of the loop; requests are answered in between.
DELIVERY_S: Final = 0.004
# What is pushed to a client before it has read what was pushed last: the memory that a client which does not read can use.
EVENTS_PER_PUSH: Final = 100
PUSH_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class WatchRequest:
    prefix: str
    selection: Selection
    # 0 for the current one.
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
        self._fan_out = _FanOut()
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
        """The events of a watch, for a reader that takes one piece after the other."""
        opened: list[Watch] = []
        async with aclosing(self._open_watch(request, frames, opened)) as pieces:
            async for piece in pieces:
                yield piece
        for watch in opened:
            try:
                async for piece in _changes(watch, request, frames):
                    yield piece
            finally:
                self._close_watch(watch)

    async def push(self, request: WatchRequest, frames: Frames, sink: Sink) -> None:
        """Send the events of a watch to a sink: what all watches cost together is one loop over those that may write."""
        opened: list[Watch] = []
        async with aclosing(self._open_watch(request, frames, opened)) as pieces:
            async for piece in pieces:
                await sink.send(piece)
                # Between the pieces of a long list, other requests are answered.
                await asyncio.sleep(0)
        for watch in opened:
            try:
                await _Delivery(watch, request, frames, sink, self._fan_out).run()
            finally:
                self._close_watch(watch)

    async def _open_watch(
        self, request: WatchRequest, frames: Frames, opened: list[Watch]
    ) -> AsyncGenerator[bytes, None]:
        """The initial state in pieces; then `opened` has the watch that follows it, unless it cannot follow."""
        try:
            revision = request.after_revision
            if request.initial_state:
                if revision:
                    await wait_for_revision(self._store, revision)
                async for piece, at in self._initial_state(request, frames):
                    revision = at
                    if piece:
                        yield piece
            elif not revision:
                revision = (await self._store.list_prefix(request.prefix, limit=1)).revision
            watch = await self._store.watch(request.prefix, after_revision=revision)
        except Compacted as error:
            known = error.compacted or self._store.newest_seen
            yield frames.error(expired(f"too old resource version: {error.revision} ({known})"))
            return
        except FutureRevision as error:
            yield frames.error(version_too_large(error.revision, error.current))
            return
        except ResourceVersionTooLarge as error:
            yield frames.error(error)
            return
        except StoreUnavailable:
            # The client resumes at its revision.
            return
        if self._ending:
            watch.close()
            return
        self._open[watch] = None
        opened.append(watch)

    def _close_watch(self, watch: Watch) -> None:
        self._open.pop(watch, None)
        watch.close()

    async def _initial_state(self, request: WatchRequest, frames: Frames) -> AsyncGenerator[tuple[bytes, int], None]:
        """The current objects in pieces, each with its revision."""
        token: PageToken | None = None
        # Decoding and converting takes several times as long as copying.
        work = 1 if frames.copies and request.selection.everything else 8
        while True:
            page = await self._store.list_prefix(request.prefix, limit=EVENTS_PER_PIECE, page=token)
            for records in in_pieces(page.records, lambda record: work * len(record.value)):
                yield b"".join([frames.first(record, request.selection) for record in records]), page.revision
            token = page.next
            if token is None:
                break
        end = frames.bookmark(page.revision, initial_events_end=True) if request.initial_bookmark else b""
        yield end, page.revision


async def _changes(watch: Watch, request: WatchRequest, frames: Frames) -> AsyncGenerator[bytes, None]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _time_limit_s(request)
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
            if piece := frames.piece(group, request.selection):
                yield piece
        now = loop.time()
        if request.bookmarks and now >= due:
            yield frames.bookmark(watch.revision)
            bookmark_due = now + BOOKMARK_EVERY_S
        if now >= deadline:
            return


class _FanOut:
    """Delivers events to watches whose clients read, for a few milliseconds in each turn of the loop."""

    def __init__(self) -> None:
        self._ready: deque[_Delivery] = deque()

    def add(self, delivery: _Delivery) -> None:
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._ready.append(delivery)

    def _deliver(self) -> None:
        end = perf_counter() + DELIVERY_S
        while self._ready and perf_counter() < end:
            self._ready.popleft().deliver()
        if self._ready:
            asyncio.get_running_loop().call_soon(self._deliver)


class _Delivery:
    """One watch and its client. It costs nothing while there are no events, or while the client does not read."""

    def __init__(self, watch: Watch, request: WatchRequest, frames: Frames, sink: Sink, fan_out: _FanOut) -> None:
        self._watch = watch
        self._request = request
        self._frames = frames
        self._sink = sink
        self._fan_out = fan_out
        self._is_queued = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Deliver until the time is over, the client has disconnected or the watch ends."""
        loop, request = asyncio.get_running_loop(), self._request
        timer = loop.call_later(_time_limit_s(request), self._end_in_time)
        self._sink.listen(on_writable=self._wake, on_gone=self._end)
        self._watch.on_change(self._wake)
        self._wake()
        try:
            if not request.bookmarks:
                await self._ended
            while not self._ended.done():
                await asyncio.wait((self._ended,), timeout=BOOKMARK_EVERY_S)
                self._send_bookmark()
        finally:
            timer.cancel()

    def deliver(self) -> None:
        """Send what is there, at most one piece."""
        self._is_queued = False
        if self._sink.is_paused or self._ended.done():
            return None
        try:
            events = self._watch.take(limit=EVENTS_PER_PUSH, bytes_max=PUSH_BYTES)
        except (WatcherTooSlow, Compacted) as error:
            self._sink.push(self._frames.error(expired(f"too old resource version: {error}")))
            return self._end()
        except StoreError:
            return self._end()
        if events and (piece := self._frames.piece(events, self._request.selection)):
            self._sink.push(piece)
        return self._wake() if self._watch.has_more else None

    def _wake(self) -> None:
        if not self._is_queued and not self._sink.is_paused and not self._ended.done():
            self._is_queued = True
            self._fan_out.add(self)

    def _end_in_time(self) -> None:
        if self._request.bookmarks:
            self._send_bookmark()
        self._end()

    def _send_bookmark(self) -> None:
        if not self._ended.done() and not self._sink.is_paused:
            self._sink.push(self._frames.bookmark(self._watch.revision))

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


def _time_limit_s(request: WatchRequest) -> float:
    """Random by default, so that watches that started together do not all reconnect together."""
    return request.timeout_s or random.uniform(TIMEOUT_MIN_S, 2 * TIMEOUT_MIN_S)


def _weight(event: StoreEvent) -> int:
    record = event.record or event.previous
    return len(record.value) if record else 0


# --- Watch frames ---------------------------------------------------------------------------------------------------
# Events of watches, as bytes: JSON lines or protobuf frames. Each is rendered once for all watches of the same
# form.


FRAMES_BYTES_MAX: Final = 16 << 20

ADDED: Final = b"ADDED"
MODIFIED: Final = b"MODIFIED"
DELETED: Final = b"DELETED"


class Frames(ABC):
    """The events of all watches of one form (such as a version, or its table) and encoding; each is rendered once."""

    content_type: ClassVar[str]

    def __init__(
        self, render: Callable[[bytes, int], bytes], bookmark: Callable[[int, bool], bytes], *, copies: bool = False
    ) -> None:
        self.copies = copies
        self._render = render
        self._bookmark = bookmark
        self._made: dict[tuple[int, bytes], bytes] = {}
        self._bytes = 0

    def change(self, type_: bytes, stored: bytes, revision: int) -> bytes:
        frame = self._made.get((revision, type_))
        if frame is None:
            frame = self._unshared(type_, stored, revision)
            self._bytes += len(frame)
            self._made[(revision, type_)] = frame
            while self._bytes > FRAMES_BYTES_MAX:
                self._bytes -= len(self._made.pop(next(iter(self._made))))
        return frame

    def first(self, record: Record, selection: Selection) -> bytes:
        """The event of an object that exists when a watch begins; empty if the watch does not select it."""
        return self._unshared(ADDED, record.value, record.revision) if selection.matches(record) else b""

    def _unshared(self, type_: bytes, stored: bytes, revision: int) -> bytes:
        return self.frame(type_, self._render(stored, revision))

    def piece(self, events: Sequence[StoreEvent], selection: Selection) -> bytes:
        """The lines of these events."""
        if selection.everything:
            return b"".join([_tell_plainly(event, self) for event in events])
        return b"".join([_tell_selected(event, selection, self) for event in events])

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
        try:
            return watch_frame(type_.decode(), read_document(document))
        except UnencodableValue as error:
            return watch_frame("ERROR", status_of(ApiError(f"cannot be written in protobuf: {error}")))


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
