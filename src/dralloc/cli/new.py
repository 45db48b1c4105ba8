"""`dralloc new`: make something to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dralloc.cli.output import fail, say

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Make something to start from.")


@app.callback()
def new() -> None:
    """Make something to start from."""


@app.command("driver")
def new_driver(
    name: Annotated[str, typer.Argument(help="The driver's name, a DNS name of yours such as `card.example.com`.")],
    directory: Annotated[
        Path | None, typer.Option(help="A new or empty directory; default: the driver's name.")
    ] = None,
) -> None:
    """Make a driver that works: program, tests, manifests, image and workflow.

    # A driver in a new directory; the output says how to test it.
    dralloc new driver card.example.com --directory card
    """
    from dralloc.driver_kit.driver_skeleton import BadSkeleton, skeleton_files, write_skeleton

    target = directory or Path(name)
    try:
        files = skeleton_files(name)
        write_skeleton(target, files)
    except BadSkeleton as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or target}: {error.strerror or error}")
    say(f"driver {name} in {target}:")
    for path in sorted(files):
        say(f"  {path}")
    say("next:")
    for line in (f"cd {target}", "pytest", "dralloc driver-test --report reports -- python driver.py"):
        say(f"  {line}")
