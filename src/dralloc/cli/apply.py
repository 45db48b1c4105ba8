"""`dralloc apply`: make a server have what manifests say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.options import Context, Gates, Kubeconfig, Namespace, Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail, parse_gates, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dralloc.cli.manifest_records import Part, Source
    from dralloc.client.transport import Transport
    from dralloc.kube.diagnostics import Diagnostic


def apply(
    files: Annotated[
        list[str], typer.Option("--filename", "-f", help="Manifests, directories of them, or - for standard input.")
    ],
    namespace: Namespace = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the server check the objects without storing them.")
    ] = False,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields that other field managers own.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
) -> None:
    """Create or update objects. Exits with 1 if an object is invalid or rejected.

    All files are validated before the first object is sent. Objects are applied one by one (server-side apply), namespaces first.
    The status of a Node, such as its capacity, is applied when the node is created, as in Kubernetes. Components write every other status;
    apply says what it leaves out.

    # A file, a directory, or the output of another program.
    dralloc apply -f claim.yaml
    dralloc apply -f examples/first-look
    dralloc convert -f old.yaml --to v1 | dralloc apply -f -

    # What would change, and how would the objects be stored?
    dralloc apply -f cluster/ --dry-run
    dralloc apply -f cluster/ --dry-run -o yaml
    """
    from dralloc.cli.answers import answer_objects
    from dralloc.cli.manifest_records import readable_sources, records_of
    from dralloc.cli.object_applier import Applied, ObjectApplier, in_order, sentence
    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.client.discovery import discover

    sources = readable_sources(files)
    warned = _judge(sources, feature_gates)
    records = records_of(sources)
    connection = find_server(kubeconfig, context)

    async def work(transport: Transport) -> list[Applied]:
        found = in_order(await discover(transport), records, namespace or connection.namespace)
        applying = ObjectApplier(transport, is_dry=dry_run, is_forced=force_conflicts, warned=warned)
        return [await applying.apply(each, tell=output.is_for_people) for each in found]

    applied = ask_server(connection, work)
    if left_out := sentence(each.without_status for each in applied if each.without_status):
        say(f"warning: {left_out}", err=True)
    refusals = [(each.subject, each.refusal) for each in applied if each.refusal]
    if not output.is_for_people:
        answer_objects(output, [each.body for each in applied if not each.refusal], refusals)
    if refusals:
        raise typer.Exit(FINDINGS)


def _judge(sources: list[Source], feature_gates: str) -> frozenset[str]:
    """Ends the command where something is wrong with the manifests; otherwise what was warned of."""
    from dralloc.cli.manifest_checks import sentence
    from dralloc.cli.manifest_records import cut
    from dralloc.kube.registry import KINDS

    known = {kind.kind for kind in KINDS}
    warned: set[str] = set()
    errors = 0
    parts = list(cut(sources))
    for part, diagnostics in zip(parts, _check(parts, feature_gates), strict=True):
        for told in diagnostics:
            is_error = told.severity.value == "error"
            # What we do not know, the server may.
            if is_error or told.kind in known:
                say(sentence(part.file, told), err=True)
                warned.add(told.message)
            errors += is_error
    if errors:
        fail(f"nothing was sent: {errors} {'error' if errors == 1 else 'errors'} in the manifests", FINDINGS)
    return frozenset(warned)


def _check(parts: list[Part], feature_gates: str) -> Iterator[Sequence[Diagnostic]]:
    """What is to be said of each part. The server has gates of its own, so what another gate would allow is no error here."""
    from datetime import UTC, datetime

    from dralloc.cli.manifest_checks import CheckOptions, check_parts
    from dralloc.primitives.features import ALL_ALPHA

    now = datetime.now(UTC)
    for part, judgement in zip(parts, check_parts(parts, CheckOptions(parse_gates(feature_gates), now)), strict=True):
        diagnostics: Sequence[Diagnostic] = judgement.diagnostics
        if not feature_gates and any(told.severity.value == "error" for told in diagnostics):
            (lenient,) = check_parts([part], CheckOptions(parse_gates(f"{ALL_ALPHA}=true"), now))
            warnings = [told for told in diagnostics if told.severity.value != "error"]
            diagnostics = [*warnings, *(told for told in lenient.diagnostics if told.severity.value == "error")]
        yield diagnostics
