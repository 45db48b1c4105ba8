"""Manifests of a whole cluster, read on all cores: every object as JSON, in the order of the files.

Reading YAML is most of the work where somebody brings thousands of slices. Large files are cut between documents, and the
lists that `kubectl get -o yaml` prints between their items, and the parts are read side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from dralloc.api.manifests import read_manifest
from dralloc.cli.file_parts import PART_SIZE_MIN, Part, cut, side_by_side
from dralloc.cli.manifest_files import Source, read_sources
from dralloc.cli.output import fail

# How kubectl begins a list, and each of its items.
_LIST: Final = b"apiVersion: v1\nitems:\n- "
_ITEM: Final = b"\n- apiVersion: "


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """An object of a file, as JSON."""

    file: str
    api_version: str
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class PartRead:
    """What was read of a part, or the error that ended reading, with its place."""

    records: tuple[ManifestRecord, ...]
    error: str = ""


def read_records(names: list[str]) -> list[ManifestRecord]:
    """Every object of every file. Ends the command where one cannot be read."""
    return records_of(readable_sources(names))


def readable_sources(names: list[str]) -> list[Source]:
    """Every file. Ends the command where one cannot be read."""
    sources = list(read_sources(names))
    for source in sources:
        if source.error:
            fail(f"{source.name}: {source.error}")
    return sources


def records_of(sources: list[Source]) -> list[ManifestRecord]:
    """Every object of the files. Ends the command where one cannot be read."""
    parts = [part for whole in cut(sources) for part in cut_list(whole, PART_SIZE_MIN)]
    records: list[ManifestRecord] = []
    slow = sum(len(part.content) for part in parts if not part.content.lstrip().startswith(b"{"))
    for read in side_by_side(read_part, parts, slow):
        if read.error:
            fail(read.error)
        records.extend(read.records)
    return records


def fail_unread(record: ManifestRecord) -> NoReturn:
    """Ends the command at an object in an unknown version: an answer without it would be wrong."""
    from dralloc.whatif.manifest_cluster import why_unreadable

    fail(why_unreadable(record))


def cut_list(part: Part, size_min: int) -> Iterator[Part]:
    """The items of a list that kubectl printed, some at a time; anything else as it is."""
    content = part.content
    if not content.startswith(_LIST) or b"\n---" in content or len(content) < 2 * size_min:
        yield part
        return
    start, lines = len(_LIST) - 2, 2
    while (found := content.find(_ITEM, start + size_min)) >= 0:
        items = content[start : found + 1]
        # What says that it is a list stands at the end of the file, and so only the last part has it.
        yield Part(part.file, b"apiVersion: v1\nkind: List\nitems:\n" + items, part.lines_before + lines - 3)
        start, lines = found + 1, lines + items.count(b"\n")
    yield Part(part.file, b"apiVersion: v1\nitems:\n" + content[start:], part.lines_before + lines - 2)


def read_part(part: Part) -> PartRead:
    manifest = read_manifest(part.content)
    if manifest.error is not None:
        place = manifest.error.position
        return PartRead((), f"{part.file}:{place.line + part.lines_before}:{place.column}: {manifest.error}")
    return PartRead(
        tuple(
            ManifestRecord(part.file, document.api_version, document.kind, document.body)
            for document in manifest.documents
        )
    )
