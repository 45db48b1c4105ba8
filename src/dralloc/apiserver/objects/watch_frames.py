"""Events of watches, as bytes: JSON lines or protobuf frames. Each is rendered once for all watches of the same form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

import msgspec

from dralloc.api.protobuf_writer import UnencodableValue, watch_frame
from dralloc.apiserver.http.messages import JSON, PROTOBUF
from dralloc.apiserver.http.statuses import status_of
from dralloc.apiserver.objects.record_lists import Selection
from dralloc.apiserver.objects.stored_form import read_document
from dralloc.primitives.errors import ApiError
from dralloc.store.records import Record, StoreEvent

FRAMES_BYTES_MAX: Final = 16 << 20
PIECES_KEPT: Final = 16

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
        self._pieces: dict[tuple[int, int, int], bytes] = {}
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
        """The lines of these events; joined once for all watches that have no selection."""
        if not selection.everything:
            return _tell(events, selection, self)
        if len(events) == 1:
            return _tell_plainly(events[0], self)
        # The events of two collections that start with the same one are the same if they end equally and are as many.
        key = (events[0].revision, events[-1].revision, len(events))
        piece = self._pieces.get(key)
        if piece is None:
            piece = _tell(events, selection, self)
            self._pieces[key] = piece
            if len(self._pieces) > PIECES_KEPT:
                del self._pieces[next(iter(self._pieces))]
        return piece

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
