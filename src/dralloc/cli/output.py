"""What commands share: exit codes, refusals in one line, answers for people and for machines.

| exit code | means |
|---|---|
| 0 | done; the answer is yes |
| 1 | done; the answer is no: something is wrong, does not fit, does not agree, is not there; or not all that matters could be asked |
| 2 | not done: wrong use, bad input, or no server that answers |
| 130 | interrupted |
| 143 | told to end by SIGTERM, and all that was started has ended |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import typer

from dralloc.cli.program_name import as_called, program_name

if TYPE_CHECKING:
    from dralloc.primitives.features import FeatureGates

FINDINGS: Final = 1
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130
TERMINATED: Final = 143

FEATURE_GATES_HELP: Final = "Feature gates that differ from their defaults, such as DRAAdminAccess=false."


def fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    """Says what is wrong, and ends the command."""
    say(message, err=True, prefix=f"{program_name()}: ")
    sys.exit(code)


def say(text: str, *, err: bool = False, prefix: str = "", newline: bool = True) -> None:
    """Prints a text. Manifests may hold text that the terminal's encoding has no signs for."""
    stream = sys.stderr if err else sys.stdout
    # Messages tell the user what to type; what goes to standard output may be a file.
    text = as_called(text) if err else text
    encoding = stream.encoding or "utf-8"
    typer.echo((prefix + text).encode(encoding, "backslashreplace").decode(encoding), err=err, nl=newline)


def in_words(error: BaseException) -> str:
    """What went wrong, without the numbers that systems have for it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Fails with the name of the file if it cannot be written inside the block: errors of a full disk name none."""
    try:
        yield
    except OSError as error:
        fail(f"cannot write {error.filename or path}: {error.strerror or error}")


def paint(text: str, colour: str) -> str:
    """The text in a colour. Where it does not go to a terminal, `say` takes the colour out again."""
    return text if os.environ.get("NO_COLOR") else typer.style(text, fg=colour)


def parse_gates(text: str, *, on: str = "") -> FeatureGates:
    """The gates that the text sets; those in `on` are on unless the text says otherwise."""
    from dralloc.primitives.features import FeatureGates, UnknownGate

    try:
        return FeatureGates.parse(f"{on},{text}")
    except UnknownGate as error:
        fail(f"--feature-gates: {error}")
