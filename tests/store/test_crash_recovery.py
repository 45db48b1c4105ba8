"""Crash recovery: acknowledged writes survive any number of kills."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

WRITER = Path(__file__).with_name("crashing_writer.py")
KILLS = 200


@pytest.mark.slow
def test_acknowledged_writes_survive_hundreds_of_kills(tmp_path: Path) -> None:
    program = [sys.executable, str(WRITER), str(tmp_path / "store.db"), str(KILLS), "1"]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    summary = re.fullmatch(r"(\d+) kills, (\d+) acknowledged writes, revision (\d+)\n", run.stdout)
    assert summary is not None, run.stdout
    kills, writes, revision = map(int, summary.groups())
    assert kills == KILLS
    assert KILLS < writes <= revision
