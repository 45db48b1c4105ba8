"""Runs benchmarks, prints their figures as a table, and records them with machine and commit."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import bench
from bench.measurement import BENCHMARKS, Figure

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> int:
    for module in pkgutil.iter_modules(bench.__path__):
        if module.name != "__main__":
            importlib.import_module(f"bench.{module.name}")
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Run benchmarks and compare their figures with targets."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"benchmarks to run (default: all): {', '.join(sorted(BENCHMARKS))}"
    )
    parser.add_argument("--list", action="store_true", help="print the names and exit")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(sorted(BENCHMARKS)))
        return 0
    if unknown := sorted(set(arguments.names) - set(BENCHMARKS)):
        parser.error(f"unknown benchmark {', '.join(unknown)}; known: {', '.join(sorted(BENCHMARKS))}")
    figures = [(name, figure) for name in arguments.names or sorted(BENCHMARKS) for figure in BENCHMARKS[name]()]
    _print(figures)
    _write(figures)
    return 0 if all(figure.is_met is not False for _, figure in figures) else 1


def _print(figures: list[tuple[str, Figure]]) -> None:
    table = Table("benchmark", "figure", "value", "unit", "target", "", title=_machine()["cpu"])
    for name, figure in figures:
        sign = "≥" if figure.more_is_better else "≤"
        target = "" if figure.target is None else f"{sign} {_shown(figure.target)}"
        verdict = {None: "", True: "[green]ok[/]", False: "[red]not met[/]"}[figure.is_met]
        table.add_row(name, figure.name, _shown(figure.value), figure.unit, target, verdict)
    Console().print(table)


def _write(figures: list[tuple[str, Figure]]) -> None:
    report = {
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": _machine(),
        "figures": [{"benchmark": name, **asdict(figure), "met": figure.is_met} for name, figure in figures],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _machine() -> dict[str, Any]:
    return {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return described.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
