"""Manifests judged on all cores: large ones in parts, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from dralloc.cli.manifest_records import Part, side_by_side
from dralloc.cli.output import paint
from dralloc.kube.diagnostics import Diagnostic, ManifestDiagnosis, Severity, diagnose_manifest
from dralloc.kube.positions import Position
from dralloc.kube.strategy import AdmissionContext
from dralloc.primitives.features import FeatureGates


@dataclass(frozen=True, slots=True)
class CheckOptions:
    gates: FeatureGates
    now: datetime
    # Objects are sent between processes only if the command prints them.
    with_stored: bool = False


def check_parts(parts: list[Part], options: CheckOptions) -> Iterator[ManifestDiagnosis]:
    """What there is to tell about each part, in order."""
    size = sum(len(part.content) for part in parts)
    return side_by_side(partial(_judge, options=options), parts, size)


def sentence(file: str, told: Diagnostic) -> str:
    """What there is to tell, in one line, as compilers do."""
    said = f"{told.path}: {told.message}" if told.path else told.message
    # An expression's faults come with a drawing, which is for people who see it alone.
    said = " ".join(line for line in said.splitlines() if not line.startswith(" | "))
    severity = paint(told.severity.value, "red" if told.severity is Severity.ERROR else "yellow")
    return f"{file}:{told.position.line}:{told.position.column}: {severity}: {said}"


def _judge(part: Part, options: CheckOptions) -> ManifestDiagnosis:
    judgement = diagnose_manifest(part.content, AdmissionContext(gates=options.gates, now=options.now))
    return replace(
        judgement,
        stored=judgement.stored if options.with_stored else (),
        diagnostics=tuple(
            replace(told, position=Position(told.position.line + part.lines_before, told.position.column))
            for told in judgement.diagnostics
        ),
    )
