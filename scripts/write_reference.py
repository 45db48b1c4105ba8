"""Writes docs/reference from the code: commands, fields, metrics, feature gates, reasons, Python. Called by `make reference`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from scripts.reference.commands import commands_page
from scripts.reference.driver_checks import driver_checks_page
from scripts.reference.faults import faults_page
from scripts.reference.feature_gates import gates_page
from scripts.reference.fields import fields_page
from scripts.reference.metrics import metrics_page
from scripts.reference.python import library_page, sdk_page
from scripts.reference.reasons import reasons_page

PLACE: Final = Path(__file__).parents[1] / "docs" / "reference"
GENERATED: Final = "<!-- Written by `make reference` from the code. -->"


def pages() -> Iterator[tuple[str, str]]:
    """Yields file name and text of every page of the reference."""
    writers: Mapping[str, Callable[[], Iterable[str]]] = {
        "cli.md": commands_page,
        "api.md": fields_page,
        "metrics.md": metrics_page,
        "doctor.md": faults_page,
        "feature-gates.md": gates_page,
        "reasons.md": reasons_page,
        "sdk.md": sdk_page,
        "driver-checks.md": driver_checks_page,
        "python.md": library_page,
    }
    for name, write in writers.items():
        title, *rest = write()
        yield name, "\n".join([title, "", GENERATED, "", *rest]).rstrip() + "\n"


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (PLACE / name).write_text(text)
        sys.stdout.write(f"docs/reference/{name}\n")


if __name__ == "__main__":
    main()
