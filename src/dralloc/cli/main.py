"""`dralloc`: every command, each in a module of its own that imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from importlib import metadata

import typer

from dralloc.cli import (
    allocate,
    apiserver,
    bench,
    cel,
    conformance,
    controllers,
    convert,
    driver_test,
    explain,
    node,
    record,
    scheduler,
    top,
    up,
    validate,
)
from dralloc.cli.output import fail

app = typer.Typer(
    name="dralloc",
    help="Kubernetes Dynamic Resource Allocation: shared devices, prioritized alternatives, one claim for thousands of pods.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("up")(up.up)
app.command("validate")(validate.validate)
app.command("convert")(convert.convert)
app.command("cel")(cel.cel)
app.command("conformance")(conformance.conformance)
app.command("driver-test")(driver_test.driver_test)
app.command("allocate")(allocate.allocate)
app.command("explain")(explain.explain)
app.add_typer(top.app, name="top")
app.command("apiserver")(apiserver.apiserver)
app.add_typer(bench.app, name="bench")
app.command("scheduler")(scheduler.scheduler)
app.command("controllers")(controllers.controllers)
app.command("node")(node.node)
app.command("record")(record.record)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dralloc {metadata.version('dralloc')}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Say which version this is.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Options that every command has."""


def main() -> None:
    """Runs the command line. What no command expected is our fault: it is said in a line, the rest on request."""
    try:
        app()
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain once more when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if os.environ.get("DRALLOC_TRACEBACK"):
            raise
        fail(
            f"this is a fault of dralloc ({type(error).__name__}: {error}); set DRALLOC_TRACEBACK=1 and report what it prints"
        )


if __name__ == "__main__":
    main()
