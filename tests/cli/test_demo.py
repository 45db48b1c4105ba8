"""`make demo` shows what it says: every command ends as the story expects, and the story is told."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_tells_its_story() -> None:
    told = subprocess.run([ROOT / "scripts" / "demo"], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    for line in (
        "default/web-2      nic        node-a   nic.example.com/node-a/eth0    bandwidth=2500M",
        "default/training   gpu/a100   node-b   gpu.example.com/node-b/gpu-0   memory=40Gi",
        "ask for 25G of bandwidth instead of 30G in request nic",
        "eth0  shared  bandwidth 5G of 10G used, 5G free, fits up to 5G",
    ):
        assert line in told.stdout
