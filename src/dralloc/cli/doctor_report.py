"""What `dralloc doctor` prints: lines for people, the same as values for machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer

from dralloc.api.diagnostics import Severity
from dralloc.api.timestamps import print_timestamp
from dralloc.cli.output import paint
from dralloc.doctor.check import Finding, HealthCheck
from dralloc.doctor.cluster_facts import ClusterFacts, span
from dralloc.doctor.examination import HealthCheckResult
from dralloc.primitives.phrases import counted


def plain_checks(checks: Iterable[HealthCheck]) -> dict[str, Any]:
    return {"checks": [{"id": each.id, "title": each.title, "why": each.why} for each in checks]}


def list_lines(checks: Iterable[HealthCheck]) -> Iterator[str]:
    checks = list(checks)
    width = max(len(each.id) for each in checks)
    for each in checks:
        yield f"{each.id:{width}}  {each.title}"


def plain_results(facts: ClusterFacts, results: Sequence[HealthCheckResult]) -> dict[str, Any]:
    return {
        "place": facts.objects.place,
        "time": print_timestamp(facts.now),
        "errors": _count(results, Severity.ERROR),
        "warnings": _count(results, Severity.WARNING),
        "checks": [
            {
                "id": result.check.id,
                "why": result.check.why,
                "findings": [_plain_finding(each) for each in result.findings],
                "unchecked": [each.reason for each in result.unchecked],
            }
            for result in results
        ],
    }


def _plain_finding(finding: Finding) -> dict[str, Any]:
    return {
        "subject": finding.subject,
        "severity": finding.severity.value,
        "message": finding.message,
        "evidence": list(finding.evidence),
        "advice": finding.advice,
        "commands": list(finding.commands),
    }


def result_lines(facts: ClusterFacts, results: Sequence[HealthCheckResult]) -> Iterator[str]:
    for result in results:
        for finding in result.findings:
            yield from _finding_lines(result.check, finding)
            yield ""
    for result in results:
        for unchecked in result.unchecked:
            yield f"not checked  {result.check.id}: {unchecked.reason}"
    errors, warnings = _count(results, Severity.ERROR), _count(results, Severity.WARNING)
    incomplete = sum(bool(result.unchecked) for result in results)
    parts = f" ({incomplete} not complete)" if incomplete else ""
    checks = f"{counted(len(results), 'check')}{parts} on {facts.objects.place}"
    if errors or warnings:
        counts = [counted(count, noun) for count, noun in ((errors, "error"), (warnings, "warning")) if count]
        yield f"{', '.join(counts)}: {checks}"
    else:
        yield f"nothing found: {checks}; a fault that may pass counts after {span(facts.older_than)} (--older-than)"


def _finding_lines(check: HealthCheck, finding: Finding) -> Iterator[str]:
    colour = typer.colors.RED if finding.severity is Severity.ERROR else typer.colors.YELLOW
    yield f"{paint(finding.severity.value, colour)}  {finding.subject}: {finding.message}  [{check.id}]"
    yield f"  {check.why}"
    for each in finding.evidence:
        yield f"  - {each}"
    yield f"  {finding.advice}"
    for command in finding.commands:
        first, *more = command.split("\n")
        yield f"    $ {first}"
        # Lines of a text that a command reads must begin as they do.
        yield from more


def _count(results: Iterable[HealthCheckResult], severity: Severity) -> int:
    return sum(each.severity is severity for result in results for each in result.findings)
