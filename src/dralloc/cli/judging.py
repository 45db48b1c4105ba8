"""Manifests judged on all cores: large ones are cut between their documents, and the parts judged side by side.

Reading YAML is most of the work and cannot be made much faster in one process; documents do not know each other,
so each part can be judged as if it were a file of its own.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from multiprocessing import get_context
from typing import Final

from dralloc.api.diagnostics import Diagnostic, Judgement, Severity, judge_manifest
from dralloc.api.positions import Position
from dralloc.api.strategy import Surroundings
from dralloc.cli.manifests import Source
from dralloc.cli.output import paint
from dralloc.primitives.features import FeatureGates

# Below this, starting processes takes longer than they save.
PART_SIZE_MIN: Final = 1_000_000

# A line of three dashes begins a document, wherever it stands.
_SEPARATOR: Final = b"\n---\n"


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    gates: FeatureGates
    now: datetime
    # Objects are sent from process to process only where somebody wants them.
    with_stored: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A file that could be read, or a part of one."""

    file: str
    content: bytes
    lines_before: int = 0


def judge_parts(parts: list[Part], options: JudgeOptions) -> Iterator[Judgement]:
    """What there is to tell about each part, in order."""
    if len(parts) == 1 or sum(len(part.content) for part in parts) < 2 * PART_SIZE_MIN:
        yield from (_judge(part, options) for part in parts)
        return
    # Started afresh, not forked: that is safe on every system, whatever else runs in this process.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield from pool.map(_judge, parts, [options] * len(parts))


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


def sentence(file: str, told: Diagnostic) -> str:
    """What there is to tell, in one line, as compilers do."""
    said = f"{told.path}: {told.message}" if told.path else told.message
    # An expression's faults come with a drawing, which is for people who see it alone.
    said = " ".join(line for line in said.splitlines() if not line.startswith(" | "))
    severity = paint(told.severity.value, "red" if told.severity is Severity.ERROR else "yellow")
    return f"{file}:{told.position.line}:{told.position.column}: {severity}: {said}"


def _judge(part: Part, options: JudgeOptions) -> Judgement:
    # Nearly everything that is read is looked at until the end: collecting would find nothing, again and again.
    gc.disable()
    try:
        judgement = judge_manifest(part.content, Surroundings(gates=options.gates, now=options.now))
    finally:
        gc.enable()
    return replace(
        judgement,
        stored=judgement.stored if options.with_stored else (),
        diagnostics=tuple(
            replace(told, position=Position(told.position.line + part.lines_before, told.position.column))
            for told in judgement.diagnostics
        ),
    )
