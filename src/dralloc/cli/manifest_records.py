"""Manifests of a whole cluster, read on all cores: every object as JSON, in the order of the files.

For thousands of slices, reading YAML is most of the work. Large files are split between documents, lists of
`kubectl get -o yaml` between their items, and the parts are read in parallel.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import msgspec

from dralloc.cli.output import fail
from dralloc.kube.manifests import read_manifest
from dralloc.kube.nesting_limit import is_nested_too_deeply
from dralloc.primitives.decoders import UNREADABLE

NAMES_SHOWN_MAX: Final = 3
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
    """Every object of the files. Ends the command where one cannot be read, or if files have none: wrong ones, most likely."""
    parts = [part for whole in cut(sources) for part in cut_list(whole, PART_SIZE_MIN)]
    records: list[ManifestRecord] = []
    slow = sum(len(part.content) for part in parts if not part.content.lstrip().startswith(b"{"))
    for read in side_by_side(read_part, parts, slow):
        if read.error:
            fail(read.error)
        records.extend(read.records)
    if sources and not records:
        names = [source.name for source in sources]
        more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
        fail(f"no objects in {', '.join(names[:NAMES_SHOWN_MAX])}{more}: empty, or only comments")
    return records


def fail_unread(record: ManifestRecord) -> NoReturn:
    """Ends the command at an object in an unknown version: an answer without it would be wrong."""
    from dralloc.answers.manifest_cluster import why_unreadable

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


class _Head(msgspec.Struct, rename="camel"):
    """What says what an object is."""

    api_version: str = ""
    kind: str = ""


class _List(msgspec.Struct, rename="camel"):
    kind: str
    items: list[msgspec.Raw]


_HEADS: Final = msgspec.json.Decoder(_Head)
_LISTS: Final = msgspec.json.Decoder(_List)


def read_part(part: Part) -> PartRead:
    return _read_list(part) or _read_manifest(part)


def _read_list(part: Part) -> PartRead | None:
    """The objects of a list in JSON, as kubectl and dumps write it. None for anything else, and where something is wrong."""
    if not part.content.startswith(b"{") or is_nested_too_deeply(part.content):
        return None
    try:
        whole = _LISTS.decode(part.content)
        heads = [_HEADS.decode(item) for item in whole.items]
    except UNREADABLE:
        return None
    if whole.kind != "List" or any(not head.kind or head.kind.endswith("List") for head in heads):
        return None
    bodies = zip(heads, whole.items, strict=True)
    return PartRead(tuple(ManifestRecord(part.file, head.api_version, head.kind, bytes(body)) for head, body in bodies))


def _read_manifest(part: Part) -> PartRead:
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


# --- File parts -----------------------------------------------------------------------------------------------------
# Large files in parts, which are worked on side by side, on all cores.
#
# Documents do not know each other, so each part can be taken as if it were a file of its own.


Result = TypeVar("Result")

# Below this, starting processes takes longer than they save.
PART_SIZE_MIN: Final = 1_000_000

# A line of three dashes begins a document, wherever it stands.
_SEPARATOR: Final = b"\n---\n"


@dataclass(frozen=True, slots=True)
class Part:
    """A file that could be read, or a part of one."""

    file: str
    content: bytes
    lines_before: int = 0


def cut(sources: Iterable[Source]) -> Iterator[Part]:
    """The parts of every file, each at least so large that it is worth a process."""
    for source in sources:
        content = source.content
        # A directive speaks of the document that follows it, so it must not be cut off.
        is_separable = b"\n%" not in content
        start = lines = 0
        while is_separable and (found := content.find(_SEPARATOR, start + PART_SIZE_MIN)) >= 0:
            part = content[start : found + 1]
            yield Part(source.name, part, lines)
            start, lines = found + 1, lines + part.count(b"\n")
        yield Part(source.name, content[start:], lines)


def side_by_side(work: Callable[[Part], Result], parts: list[Part], size: int) -> Iterator[Result]:
    """What the work makes of each part, in order. `size` is that of those parts that take time."""
    undisturbed = partial(_undisturbed, work)
    if len(parts) == 1 or size < 2 * PART_SIZE_MIN:
        yield from map(undisturbed, parts)
        return
    # They take long to import, and few have so much to read.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Started afresh, not forked: that is safe on every system, whatever else runs in this process.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield from pool.map(undisturbed, parts)


def _undisturbed(work: Callable[[Part], Result], part: Part) -> Result:
    # Nearly everything that is read is looked at until the end: collecting would find nothing, again and again.
    gc.disable()
    try:
        return work(part)
    finally:
        gc.enable()


# --- Manifest files -------------------------------------------------------------------------------------------------
# The files that a user names: manifests, directories of them, or standard input.


STANDARD_INPUT: Final = "-"
SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Source:
    """A file's name and bytes, or why it cannot be read."""

    name: str
    content: bytes = b""
    error: str = ""


def read_sources(names: list[str]) -> Iterator[Source]:
    """Every file named, and every manifest below every directory named, in order."""
    for name in names:
        path = Path(name)
        if name == STANDARD_INPUT:
            yield Source(shown_name(name), sys.stdin.buffer.read())
        elif path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            if not found:
                yield Source(name, error="no manifests (*.yaml, *.yml, *.json) in this directory")
            yield from map(_read, found)
        else:
            yield _read(path)


def shown_name(name: str) -> str:
    """How messages call what the user named."""
    return "<stdin>" if name == STANDARD_INPUT else name


def _read(path: Path) -> Source:
    try:
        return Source(str(path), path.read_bytes())
    except OSError as error:
        return Source(str(path), error=error.strerror or str(error))
