"""`dralloc doctor`: faults of a cluster, with evidence and the commands that mend them."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dralloc.cli.options import Context, Files, Kubeconfig, Namespace, Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail, in_words, say

if TYPE_CHECKING:
    from dralloc.answers.cluster_objects import ClusterObjects, ReadKind
    from dralloc.answers.doctor.check import HealthCheck
    from dralloc.answers.doctor.cluster_facts import CheckpointRecords, ClusterFacts, Fact
    from dralloc.answers.side_facts import ComponentGates
    from dralloc.cli.cluster_source import ClusterSource
    from dralloc.kube.meta_v1 import ApiObject

    _Read = tuple[ClusterObjects, dict[type[ApiObject], ReadKind]]
from collections.abc import Iterable, Iterator
from typing import Any

from dralloc.answers.doctor.check import Finding, HealthCheck
from dralloc.answers.doctor.cluster_facts import ClusterFacts, span
from dralloc.answers.doctor.examination import HealthCheckResult
from dralloc.cli.output import paint
from dralloc.kube.diagnostics import Severity
from dralloc.kube.timestamps import print_timestamp
from dralloc.primitives.phrases import counted

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _span(text: str | timedelta) -> timedelta:
    found = re.fullmatch(r"(\d{1,7})([smhd])", str(text))
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a time such as 90s, 10m, 2h or 30d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _checks_starting_with(incomplete: str) -> list[str]:
    from dralloc.answers.doctor.examination import CHECKS

    return [name for name in CHECKS if name.startswith(incomplete)]


def doctor(
    files: Files = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check",
            metavar="ID",
            help="Only this check (see --list); may be given several times.",
            autocompletion=_checks_starting_with,
        ),
    ] = None,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks, and do nothing else.")] = False,
    older_than: Annotated[
        timedelta,
        typer.Option(
            metavar="TIME",
            parser=_span,
            help="Faults that may be passing count after this time, such as 90s, 10m or 2h.",
        ),
    ] = "10m",  # type: ignore[assignment]  # parsed
    expires_within: Annotated[
        timedelta, typer.Option(metavar="TIME", parser=_span, help="Certificates count that expire within this time.")
    ] = "30d",  # type: ignore[assignment]  # parsed
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="A checkpoint of a node: the file of a kubelet (dra_manager_state) or of dralloc node, or the directory of a driver; may be given several times.",
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL|FILE",
            help="The metrics of a further component, to compare its feature gates; may be given several times.",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Find faults of a cluster: each with its evidence, and the commands that mend it. Nothing is written.

    Exits with 1 if there is an error, or if a check could not look, for example because of missing permissions; such a check says so.
    Warnings alone are no failure. From a dump (-f), checks answer for the time when it was made.

    # The cluster of kubectl's current context.
    dralloc doctor

    # On a node, with its kubelet's checkpoint.
    dralloc doctor --checkpoint /var/lib/kubelet/dra_manager_state

    # One check, for a program.
    dralloc doctor --check leaked-claim --older-than 2h -o json

    # From a dump, on another machine.
    dralloc dump -o cluster.json
    dralloc doctor -f cluster.json

    # With the gates of a scheduler that is not in the cluster.
    dralloc doctor --metrics scheduler=http://127.0.0.1:9090/metrics
    """
    from dralloc.answers.doctor.examination import CHECKS, examine
    from dralloc.cli.answers import answer
    from dralloc.cli.cluster_source import ClusterSource
    from dralloc.cli.doctor import list_lines, plain_checks, plain_results, result_lines

    if list_checks:
        answer(output, lambda: plain_checks(CHECKS.values()), lambda: list_lines(CHECKS.values()))
        return
    if unknown := [each for each in check or () if each not in CHECKS]:
        fail(f"--check: there is no check {unknown[0]!r}; known: {', '.join(CHECKS)}")
    chosen = [each for name, each in CHECKS.items() if not check or name in check]
    named = _named_components(metrics or ())
    records = _checkpoints(checkpoint or ())
    source = ClusterSource(files=files, kubeconfig=kubeconfig, context=context, namespace=namespace)
    facts = _facts(source, chosen, named, records, older_than, expires_within)
    results = examine(facts, chosen)
    answer(output, lambda: plain_results(facts, results), lambda: result_lines(facts, results))
    if any(each.is_failed for each in results):
        sys.exit(FINDINGS)


def _facts(
    source: ClusterSource,
    checks: Sequence[HealthCheck],
    named: Sequence[ComponentGates],
    checkpoints: tuple[CheckpointRecords, ...],
    older_than: timedelta,
    expires_within: timedelta,
) -> ClusterFacts:
    from dataclasses import replace

    from dralloc.answers.doctor.cluster_facts import ClusterFacts
    from dralloc.answers.doctor.live_facts import published_gates
    from dralloc.kube.core_v1 import ConfigMap

    kinds = {kind for check in checks for kind in (*check.needs, *check.uses)}
    beside = {fact for check in checks for fact in check.facts}
    objects, read = _read_live(source, kinds, beside) if source.has_cluster else _read_files(source, kinds)
    told = {found.note for found in read.values()}
    for note in objects.notes:
        # Of kinds that could not be read, the checks tell.
        if note not in told:
            say(note, err=True, prefix="note: ")
    facts = ClusterFacts(
        objects=objects, read=read, older_than=older_than, expires_within=expires_within, checkpoints=checkpoints
    )
    published = published_gates(objects.all(ConfigMap).values())
    return replace(facts, components=(*facts.beside.components, *published, *named))


def _read_files(source: ClusterSource, kinds: set[type[ApiObject]]) -> _Read:
    from dralloc.primitives.features import FeatureGates

    objects, read = source.read(FeatureGates.defaults(), kinds, with_workload_pods=False, with_writes=True)
    if not read and not objects.objects:
        fail(f"{', '.join(source.files or ())}: no devices, claims, pods or nodes found")
    return objects, read


def _read_live(source: ClusterSource, kinds: set[type[ApiObject]], beside: set[Fact]) -> _Read:
    """The cluster. If its certificate, or the user's, is not valid now, that is all there is to be said."""
    from dralloc.answers.cluster_objects import ClusterObjects, ReadKind
    from dralloc.answers.doctor.live_facts import (
        nothing_read,
        read_certificates,
        read_facts,
        unusable,
        with_certificates,
    )
    from dralloc.answers.live_cluster import server_version
    from dralloc.cli.cluster_source import NAME_FILES
    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.primitives.features import FeatureGates

    connection = find_server(source.kubeconfig, source.context, otherwise=NAME_FILES)
    shown = ask_server(connection, lambda _: read_certificates(connection))
    empty = ClusterObjects(FeatureGates.defaults(), place=f"the cluster {connection.server}")
    if why := unusable(shown, empty.now, verifies=connection.verify):
        empty.facts = with_certificates(nothing_read(why), shown)
        return empty, {kind: ReadKind(note=why, is_missing=True) for kind in kinds}
    objects, read = source.read(FeatureGates.defaults(), kinds, with_workload_pods=False, with_writes=True)
    objects.server_version = ask_server(connection, server_version)
    objects.facts = with_certificates(ask_server(connection, lambda transport: read_facts(transport, beside)), shown)
    return objects, read


def _checkpoints(paths: Sequence[Path]) -> tuple[CheckpointRecords, ...]:
    from datetime import UTC, datetime

    from dralloc.answers.doctor.cluster_facts import CheckpointForm, CheckpointRecords, read_records
    from dralloc.driver.checkpoint import SUFFIX

    found = []
    for path in paths:
        try:
            files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
            if not files:
                # A driver that has prepared nothing.
                found.append(CheckpointRecords(file=str(path.absolute()), form=CheckpointForm.DRIVER, claims=()))
            for file in files:
                written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
                found.append(read_records(str(file.absolute()), file.read_bytes(), written))
        except OSError as error:
            fail(f"--checkpoint: {in_words(error)}")
        except ValueError as error:
            fail(f"--checkpoint: {file}: {error}")
    return tuple(found)


def _named_components(named: Sequence[str]) -> list[ComponentGates]:
    from dralloc.answers.side_facts import ComponentGates
    from dralloc.primitives.metrics import NAME, gates_in

    found = []
    for text in named:
        name, separator, where = text.partition("=")
        if not separator or not name or not where:
            fail(f"--metrics: {text!r} is not NAME=URL or NAME=FILE")
        gates = gates_in(_metrics_of(where))
        if not gates:
            fail(f"--metrics: {where} has no {NAME}: the component is too old, or this is not its /metrics")
        found.append(ComponentGates(component=name, known_from=where, gates=gates))
    return found


def _metrics_of(where: str) -> str:
    from urllib.parse import urlsplit

    from dralloc.cli.server_connection import ask_server
    from dralloc.client.kubeconfig import ConnectionConfig
    from dralloc.client.transport import ClientRequest

    if not where.startswith(("http://", "https://")):
        try:
            return Path(where).read_text(errors="replace")
        except OSError as error:
            fail(f"--metrics: {in_words(error)}")
    url = urlsplit(where)
    connection = ConnectionConfig(server=f"{url.scheme}://{url.netloc}")
    request = ClientRequest(method="GET", path=url.path or "/metrics")
    response = ask_server(connection, lambda transport: transport.send(request))
    if response.status != 200:
        fail(f"--metrics: {where} answers {response.status}; save what it shows to a file, and name the file")
    return response.body.decode(errors="replace")


# --- Doctor report --------------------------------------------------------------------------------------------------
# What `dralloc doctor` prints: lines for people, the same as values for machines.


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
