"""`dralloc driver-test`: check a driver, in any language, as a kubelet would call it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.options import Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail, in_words, say, writing

if TYPE_CHECKING:
    from dralloc.driver_kit.kit import KitResult, KitSettings


def _checks_starting_with(incomplete: str) -> list[str]:
    """Groups of checks; the checks of a group once its name is typed."""
    from dralloc.driver_kit.checks import ALL

    groups = dict.fromkeys(check.id.partition(".")[0] for check in ALL)
    candidates = [check.id for check in ALL] if "." in incomplete or incomplete in groups else groups
    return [name for name in candidates if name.startswith(incomplete)]


def driver_test(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="The driver's command, after `--`; {kubeconfig}, {node}, {registry}, {plugins} and {cdi} are filled in, "
            "and KUBECONFIG, NODE_NAME, DRA_REGISTRY_DIR, DRA_PLUGINS_DIR and DRA_CDI_DIR are set.",
        ),
    ] = None,
    socket: Annotated[Path | None, typer.Option(help="The registration or service socket of a running driver.")] = None,
    registry: Annotated[Path | None, typer.Option(help="The directory in which a running driver registers.")] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="The kubeconfig of the driver's cluster; default for a running driver: the one that kubectl uses."
        ),
    ] = None,
    serve_kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Serve an API for a driver that is started separately, and write its kubeconfig here or add an entry."
        ),
    ] = None,
    node: Annotated[str, typer.Option(help="The node name that the driver uses.")] = "driver-test",
    driver: Annotated[
        str, typer.Option(help="The driver's name, if it cannot be determined from the registration.")
    ] = "",
    claim: Annotated[
        Path | None,
        typer.Option(help="A manifest with the ResourceClaim to use, for drivers that need a specific one."),
    ] = None,
    cdi_dir: Annotated[list[Path] | None, typer.Option(help="The directory of the CDI files of the driver.")] = None,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(
            help="The file or directory in which the driver remembers prepared claims; default: the plugin directory of a driver that this command starts."
        ),
    ] = None,
    restart_command: Annotated[str | None, typer.Option(help="A command that restarts a running driver.")] = None,
    kill_command: Annotated[
        str | None,
        typer.Option(
            help="A command that kills what the driver's command has started elsewhere, such as `podman kill NAME`."
        ),
    ] = None,
    lose_device: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help="A command that takes a device away; {device} and {pool} are filled in, quoted."
        ),
    ] = None,
    restore_device: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="A command that brings the lost device back.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only checks whose names begin with this, such as `prepare`.", autocompletion=_checks_starting_with
        ),
    ] = None,
    list_checks: Annotated[
        bool,
        typer.Option("--list", help="List the checks with why they matter and how to fix a driver that fails them."),
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit report to this file.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Write report.html, report.json, junit.xml, badge.svg and badge.json there."
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="The timeout for the start of the driver.", min=0.1)
    ] = 60.0,
    wait_repair: Annotated[
        float, typer.Option(metavar="SECONDS", help="The timeout for the restoration of deleted slices.", min=0.1)
    ] = 90.0,
    wait_health: Annotated[
        float, typer.Option(metavar="SECONDS", help="The timeout for reports about the health of devices.", min=0.1)
    ] = 35.0,
    wait_cleanup: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long the driver may remember a claim that was deleted while it was away; without it this is not tested.",
            min=0.1,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also fail on remarks and on checks that were not tested.")
    ] = False,
    show_output: Annotated[bool, typer.Option("--show-output", help="Show the driver's output.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Check that a driver fulfils its contract with the kubelet.

    Exits with 0 if it does; with 1 if not, or if important checks were skipped: without a server there are no claims to check with.

    # A driver that this command starts, with an API server of its own.
    dralloc driver-test -- ./my-driver --kubeconfig {kubeconfig} --node {node}

    # A driver that runs already, on a node with a kubelet, and the cluster that
    # kubectl uses.
    cd /var/lib/kubelet
    dralloc driver-test --socket plugins_registry/my-reg.sock --node n7

    # In continuous integration: reports and a badge.
    dralloc driver-test --report reports -- ./my-driver

    # A driver that can lose a device.
    dralloc driver-test --lose-device 'rm devices/{device}' -- ./my-driver

    # What is checked, why it matters, and how to fix it.
    dralloc driver-test --list --only checkpoint
    """
    from dralloc.driver_kit.check import CheckOutcome
    from dralloc.driver_kit.kit import BadSetup, KitSettings

    if list_checks:
        _list(tuple(only or ()), output)
        return
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
            checkpoint=tuple(checkpoint or ()),
            restart_command=restart_command,
            kill_command=kill_command,
            lose_command=lose_device,
            restore_command=restore_device,
            only=tuple(only or ()),
            start_s=wait,
            repair_s=wait_repair,
            health_s=wait_health,
            cleanup_s=wait_cleanup,
            show_output=show_output,
        )
        if socket is not None and registry is not None:
            raise BadSetup("give --socket or --registry, not both")
        _check_targets(junit, report)
    except BadSetup as error:
        fail(str(error))
    result = _run(settings, output)
    _write(result, junit, report)
    bad = {CheckOutcome.FAILED, CheckOutcome.REMARKED, CheckOutcome.NOT_TESTED} if strict else {CheckOutcome.FAILED}
    if any(each.outcome in bad or not each.is_testable for each in result.results):
        raise typer.Exit(FINDINGS)


def _list(only: tuple[str, ...], output: OutputFormat) -> None:
    from dralloc.cli.answers import answer
    from dralloc.driver_kit.kit import BadSetup, checks_that_begin_with
    from dralloc.driver_kit.report import check_values, listed

    try:
        checks = checks_that_begin_with(only)
    except BadSetup as error:
        fail(str(error))
    answer(output, lambda: {"checks": [check_values(check) for check in checks]}, lambda: listed(checks))


def _check_targets(junit: Path | None, report: Path | None) -> None:
    """Refuse places that cannot be written to before the driver is tested, not afterwards."""
    if junit is not None and junit.is_dir():
        fail(f"{junit} is a directory; choose a file with --junit")
    if junit is not None and not junit.absolute().parent.is_dir():
        fail(f"{junit.parent} is not a directory; choose another one with --junit")
    if report is not None:
        existing = next(place for place in (report, *report.absolute().parents) if place.exists())
        if not existing.is_dir():
            fail(f"{existing} is not a directory; choose another one with --report")


def _write(result: KitResult, junit: Path | None, report: Path | None) -> None:
    from dralloc.driver_kit.report import junit_of
    from dralloc.driver_kit.report_files import write_reports

    if junit is not None:
        with writing(junit):
            junit.write_bytes(junit_of(result.results, result.driver))
    if report is not None:
        with writing(report):
            write_reports(report, result)


def _run(settings: KitSettings, output: OutputFormat) -> KitResult:
    from dralloc.cli.answers import answer
    from dralloc.cli.termination import run_until_terminated
    from dralloc.client.kubeconfig import BadKubeconfig
    from dralloc.client.transport import TransportError
    from dralloc.driver_kit.driver_process import CommandFailed
    from dralloc.driver_kit.driver_under_test import DriverNotFound
    from dralloc.driver_kit.kit import BadSetup, run_kit
    from dralloc.driver_kit.report import lines_of, summary_of, values_of
    from dralloc.primitives.errors import ApiError
    from dralloc.server.identity.kubeconfig import UnusableKubeconfig

    def show(result: object) -> None:
        for line in lines_of(result) if output.is_for_people else ():  # type: ignore[arg-type]
            say(line)

    def tell(text: str) -> None:
        # Standard output is for the report, where a machine reads it.
        say(text, err=not output.is_for_people)

    try:
        with _without_warnings():
            result = run_until_terminated(run_kit(settings, show, tell))
    except (BadSetup, BadKubeconfig, CommandFailed, DriverNotFound, ApiError, TransportError, OSError) as error:
        fail(in_words(error))
    except UnusableKubeconfig as error:
        fail(f"{error}; choose another path with --serve-kubeconfig")
    answer(output, lambda: values_of(result.results, result.driver), lambda: summary_of(result.results))
    return result


@contextmanager
def _without_warnings() -> Iterator[None]:
    """A slow machine makes the kit's own API server warn of itself; that is no finding about the driver."""
    import logging

    logger = logging.getLogger("dralloc")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
