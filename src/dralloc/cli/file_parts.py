"""Large files in parts, which are worked on side by side, on all cores.

Documents do not know each other, so each part can be taken as if it were a file of its own.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from dralloc.cli.manifest_files import Source

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
