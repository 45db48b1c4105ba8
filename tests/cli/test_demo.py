"""`make demo` runs real commands on a real cluster and leaves no process behind."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.child_process import child_process

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEMO = (sys.executable, "-m", "scripts.demo")
DEADLINE_S = 240

TOLD = (
    # A shared card, and the next one for whom it has no room.
    "    eth1  shared   bandwidth 80G of 100G used, 20G available, fits up to 20G",
    "    eth2  shared   bandwidth 40G of 100G used, 60G available, fits up to 60G",
    # One card for two.
    "50-gib   allocated,reserved   gpu-0/gpu-0   1        memory=50Gi   pods/training",
    "30-gib   allocated,reserved   gpu-0/gpu-0   1        memory=30Gi   pods/notebook",
    # The second alternative.
    "default/best-card: request card/whole-card has gpu.example.com/gpu-",
    # One claim for 500 pods.
    "500 pods are running on 12 nodes",
    "sweep-dataset   allocated,reserved   fabric/dataset   0        <none>     jobs.batch/sweep",
    # What is missing, and what would help.
    "4 nodes: insufficient memory: requested 96Gi, the largest device has 80Gi",
    "  - request 80Gi of memory instead of 96Gi in request gpu  [gpu-3]",
)


def test_without_a_terminal_it_tells_the_story_and_ends() -> None:
    told = subprocess.run(DEMO, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    for line in TOLD:
        assert line in told.stdout
    assert "The output is not a terminal, so the cluster stops now" in told.stdout
    assert "\033" not in told.stdout


def test_on_a_terminal_it_goes_on_until_ctrl_c() -> None:
    terminal, its_side = pty.openpty()
    # A session of its own: Ctrl-C goes to all that run on a terminal.
    with child_process([*DEMO, "--chapters", "1"], cwd=ROOT, stdout=its_side, start_new_session=True) as demo:
        os.close(its_side)
        with open(terminal, encoding="utf-8", errors="replace") as screen:
            said = ""
            for line in screen:
                said += line
                if line.startswith("Ctrl-C"):
                    break
            assert "\033[1m1. Pods share a network card with guaranteed bandwidth\033[0m" in said
            place = said.rpartition("\033[1mhttp:")[2].partition("\033")[0]
            with urlopen(f"http:{place}", timeout=DEADLINE_S) as page:
                assert page.status == 200
            os.killpg(demo.pid, signal.SIGINT)
            assert demo.wait(timeout=DEADLINE_S) == 0


def test_ctrl_c_in_the_middle_of_the_story_ends_it_quietly() -> None:
    with child_process(
        [*DEMO, "--stay"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("$ dralloc apply"):
                break
        os.killpg(demo.pid, signal.SIGINT)
        told, faults = demo.communicate(timeout=DEADLINE_S)
    assert (demo.returncode, told.splitlines()[-1]) == (0, "stopped")
    assert "the demo failed" not in faults
    assert "Traceback" not in faults
