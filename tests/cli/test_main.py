"""The command itself: version, help, and refusals that say what to do."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from dralloc.cli.main import app


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"dralloc {metadata.version('dralloc')}\n")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["validate"], ["convert", "-f", "x", "--to", "v2"], ["validate", "--nonsense", "x"]]
)
def test_wrong_use_ends_with_two(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.slow
def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    code = "import sys, dralloc.cli.main; print(sorted({'yaml', 'grpc', 'aiohttp', 'uvicorn', 'dralloc.api', 'dralloc.cel'} & set(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
