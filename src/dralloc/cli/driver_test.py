"""`dralloc driver-test`: put a driver, in any language, to the questions that a node would ask it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.options import Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail, in_words, say

if TYPE_CHECKING:
    from dralloc.driver_kit.kit import KitResult, KitSettings


def driver_test(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="The driver's command, after `--`; {kubeconfig}, {node}, {registry}, {plugins} and {cdi} are filled in, "
            "and KUBECONFIG, NODE_NAME, DRA_REGISTRY_DIR, DRA_PLUGINS_DIR and DRA_CDI_DIR are set.",
        ),
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(help="The socket of a driver that runs: for registration, or for calls.")
    ] = None,
    registry: Annotated[Path | None, typer.Option(help="The directory in which a driver that runs registers.")] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="The cluster that the driver uses; for a driver that runs already, the one that kubectl uses."
        ),
    ] = None,
    serve_kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Serve an API for a driver that somebody else starts, and write its kubeconfig here, or add to the one there."
        ),
    ] = None,
    node: Annotated[str, typer.Option(help="The node that the driver believes to run on.")] = "driver-test",
    driver: Annotated[str, typer.Option(help="The driver's name, where it cannot be asked for it.")] = "",
    claim: Annotated[
        Path | None, typer.Option(help="A manifest with the ResourceClaim to try, for drivers that need a certain one.")
    ] = None,
    cdi_dir: Annotated[list[Path] | None, typer.Option(help="Where the driver writes CDI files.")] = None,
    restart_command: Annotated[
        str | None, typer.Option(help="A command that restarts a driver which somebody else runs.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only checks whose names begin so, such as `prepare`.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write a report for continuous integration here.")] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How many seconds a driver may take to start.", min=0.1)
    ] = 60.0,
    wait_repair: Annotated[
        float, typer.Option(metavar="SECONDS", help="How many seconds deleted slices may take to come back.", min=0.1)
    ] = 90.0,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on remarks and on skipped checks too.")] = False,
    show_output: Annotated[bool, typer.Option("--show-output", help="Show what the driver prints.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Check that a driver keeps its contract with the node.

    Exits with 0 if it does, with 1 if not, or if much could not be asked: without a server there are no claims to ask about.

    # A driver that this command starts, with an API server that it brings along.
    dralloc driver-test -- ./my-driver --kubeconfig {kubeconfig} --node {node}

    # A driver that runs already, on a node with a kubelet, and the cluster that
    # kubectl uses.
    cd /var/lib/kubelet
    dralloc driver-test --socket plugins_registry/my-reg.sock --node n7

    # In continuous integration.
    dralloc driver-test --strict --junit report.xml -- ./my-driver
    """
    from dralloc.driver_kit.kit import BadSetup, KitSettings

    try:
        settings = KitSettings(
            command=tuple(command or ()),
            place=socket or registry,
            kubeconfig=kubeconfig,
            serve_kubeconfig=serve_kubeconfig,
            node_name=node,
            driver_name=driver,
            claim=claim,
            cdi_dirs=tuple(cdi_dir or ()),
            restart_command=restart_command,
            only=tuple(only or ()),
            start_s=wait,
            repair_s=wait_repair,
            show_output=show_output,
        )
        if socket is not None and registry is not None:
            raise BadSetup("give --socket or --registry, not both")
    except BadSetup as error:
        fail(str(error))
    _run(settings, junit, output, strict=strict)


def _run(settings: KitSettings, junit: Path | None, output: OutputFormat, *, strict: bool) -> None:
    from dralloc.apiserver.credentials.kubeconfig import UnusableKubeconfig
    from dralloc.cli.answers import answer
    from dralloc.cli.termination import run_until_terminated
    from dralloc.client.kubeconfig import BadKubeconfig
    from dralloc.client.transport import TransportError
    from dralloc.driver_kit.check import CheckOutcome
    from dralloc.driver_kit.driver_process import CommandFailed
    from dralloc.driver_kit.driver_under_test import DriverNotFound
    from dralloc.driver_kit.kit import BadSetup, run_kit
    from dralloc.driver_kit.report import junit_of, lines_of, summary_of
    from dralloc.primitives.errors import ApiError

    def show(result: object) -> None:
        for line in lines_of(result) if output.is_for_people else ():  # type: ignore[arg-type]
            say(line)

    def tell(text: str) -> None:
        # Standard output is for the report, where a machine reads it.
        say(text, err=not output.is_for_people)

    try:
        result = run_until_terminated(run_kit(settings, show, tell))
    except (BadSetup, BadKubeconfig, CommandFailed, DriverNotFound, ApiError, TransportError, OSError) as error:
        fail(in_words(error))
    except UnusableKubeconfig as error:
        fail(f"{error}; choose another place with --serve-kubeconfig")
    answer(output, lambda: _values(result), lambda: summary_of(result.results))
    if junit is not None:
        try:
            junit.write_bytes(junit_of(result.results, result.driver))
        except OSError as error:
            fail(f"{junit}: {error.strerror or error}")
    bad = {CheckOutcome.FAILED, CheckOutcome.REMARKED, CheckOutcome.SKIPPED} if strict else {CheckOutcome.FAILED}
    if any(result.outcome in bad or not result.is_testable for result in result.results):
        raise typer.Exit(FINDINGS)


def _values(result: KitResult) -> dict[str, Any]:
    return {
        "driver": result.driver,
        "checks": [
            {
                "id": result.check.id,
                "title": result.check.title,
                "outcome": result.outcome.value,
                "findings": [finding.text for finding in result.findings],
                "skipped": result.skipped or None,
                "asked": result.is_testable,
                "seconds": result.seconds,
            }
            for result in result.results
        ],
    }
