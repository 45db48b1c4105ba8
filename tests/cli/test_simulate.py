"""`dralloc simulate`: tables for people, values for programs, runs that can be continued."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from tests.support.child_process import child_process

PODS = "name,cores,memory_gib,devices,arrival_s,duration_s\n" + "".join(
    f"p{number},4,16,{size},{number},{duration}\n"
    for number, (size, duration) in enumerate([(2, 50), (1, ""), (0.5, 20), (2, 10), ("", 5)])
)
NODES = "name,cores,memory_gib,devices\nn0,64,256,2\nn1,64,256,0\n"
MIX = ("--synthetic", "pods=40", "--nodes", "3x4:64:512")


def simulated(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", "--workers", "1", *arguments])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "nodes.csv").write_text(NODES)
    return tmp_path


def test_table(files: Path) -> None:
    said = simulated("pods.csv", "--cluster", "nodes.csv")
    assert said.exit_code == 0, said.output
    lines = said.stdout.splitlines()
    assert lines[0].split() == (
        ["TRACE", "STRATEGY", "ALLOCATED", "UNALLOCATED", "STRANDED", "PODS", "REFUSED", "WAIT", "WAIT", "P95"]
    )
    assert lines[1].startswith("pods    Spread     100.00 %    0.00 %")
    assert lines[3].split() == "STRANDED BY CAUSE taint counters remainder-too-small cpu-starved".split()  # noqa: SIM905
    assert lines[6].split() == ["REFUSED", "BY", "DEVICES", "2"]


def test_values_for_programs(files: Path) -> None:
    said = simulated(*MIX, "--tune", "1.2", "--seeds", "3", "--csv", "runs.csv", "-o", "json")
    assert said.exit_code == 0, said.output
    values = json.loads(said.stdout)
    [result] = values["results"]
    assert result["seeds"] == [42, 43, 44]
    assert result["allocated_percent"] + result["unallocated_percent"] == pytest.approx(100)
    rows = list(csv.DictReader((files / "runs.csv").read_text().splitlines()))
    assert [row["seed"] for row in rows] == ["42", "43", "44"]
    assert [float(row["unallocated_percent"]) for row in rows] == [run["unallocated_percent"] for run in values["runs"]]


def test_moves_are_counted(files: Path) -> None:
    pods = "name,cores,memory_gib,devices,arrival_s\na,1,1,1,0\nb,1,1,1,0\nlarge,1,1,2,1\n"
    (files / "pods.csv").write_text(pods)
    said = simulated("pods.csv", "--nodes", "2x2:8:8", "--moves-max", "1")
    assert said.stdout.splitlines()[0].endswith("PODS   REFUSED   MOVES")
    assert said.stdout.splitlines()[1].split()[-3:] == ["3", "0", "1"]


def test_every_seed_draws_a_trace_of_its_own(files: Path) -> None:
    values = json.loads(simulated(*MIX, "--seeds", "3", "-o", "json").stdout)
    assert len({run["allocated_percent"] for run in values["runs"]}) > 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--nodes", "1x1:1:1"], "give the file of a trace, or --synthetic MIX"),
        (["pods.csv"], "give either --cluster or --nodes"),
        (["pods.csv", "--nodes", "1x1:1:1", "--cluster", "nodes.csv"], "give either --cluster or --nodes"),
        (["pods.csv", "--nodes", "many"], "nodes 'many': expected COUNTxDEVICES:CORES:GIB[:MODEL]"),
        (["pods.csv", "--nodes", "gpu=x"], "gpu=x: the number of nodes must be between 1 and 10000"),
        (["pods.csv", "--nodes", "0x1:1:1"], "nodes '0x1:1:1': the number of nodes must be between 1 and 100,000"),
        (["pods.csv", "--cluster", "none.csv"], "none.csv: No such file or directory"),
        (["pods.csv", "--cluster", "pods.csv"], "pods.csv:4: column devices: expected a whole number, got '0.5'"),
        (["pods.csv", "--cluster", "gpu", "--device-class", "x"], "no device class 'x' in gpu; known: gpu.example.com"),
        (
            ["pods.csv", "--cluster", "gpu", "--capacity", "x"],
            "no shared capacity 'x' of gpu.example.com; known: memory",
        ),
        (["pods.csv", "pods.csv", "--cluster", "gpu"], "two traces have the name pods; rename a file"),
        (["pods.csv", "--cluster", "gpu", "--strategy", "Best"], "unknown strategy 'Best'; known: "),
        (["--synthetic", "pods=x", "--cluster", "gpu"], "pods: expected a whole number between 1 and"),
        (
            ["--synthetic", "cats=1", "--cluster", "gpu"],
            "synthetic: 'cats=1': expected KEY=VALUE with one of pods, shapes",
        ),
        (["--synthetic", "cores=normal(1)", "--cluster", "gpu"], "cores: 'normal(1)': known are uniform(…)"),
        (
            ["--synthetic", "cores=uniform(2,1)", "--cluster", "gpu"],
            "cores: uniform(2, 1): the first number is the smaller",
        ),
        (["--synthetic", "duration=lognormal(1)", "--cluster", "gpu"], "duration: lognormal takes 2 numbers, not 1"),
        (
            ["pods.csv", "--cluster", "gpu", "--report", "no/dir.html"],
            "cannot write no/dir.html: No such file or directory",
        ),
    ],
)
def test_bad_input(files: Path, arguments: list[str], expected: str) -> None:
    said = simulated(*arguments)
    assert said.exit_code == 2
    assert said.stderr.startswith(f"dralloc: {expected}"), said.stderr


def test_finished_runs_are_kept_and_more_seeds_are_added(files: Path) -> None:
    first = json.loads(simulated(*MIX, "--seeds", "2", "--run-dir", "runs", "-o", "json").stdout)
    kept = {path: path.stat().st_mtime_ns for path in (files / "runs").iterdir()}
    assert len(kept) == 2
    said = simulated(*MIX, "--seeds", "3", "--run-dir", "runs", "-o", "json")
    assert said.stderr == "2 of 3 runs are finished already in runs\n"
    assert json.loads(said.stdout)["runs"][:2] == first["runs"]
    assert len(list((files / "runs").iterdir())) == 3
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_other_input_is_simulated_again_and_damaged_runs_too(files: Path) -> None:
    simulated(*MIX, "--run-dir", "runs")
    [path] = (files / "runs").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    assert simulated(*MIX, "--run-dir", "runs").exit_code == 0
    assert simulated("--synthetic", "pods=41", "--nodes", "3x4:64:512", "--run-dir", "runs").exit_code == 0
    assert simulated(*MIX, "--tune", "1.1", "--run-dir", "runs").exit_code == 0
    assert len(list((files / "runs").glob("run-*"))) == 3


def _wait_until_gone(group: int) -> None:
    """Until no process of the group is left."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(group, os.WNOHANG)
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
    pytest.fail("workers outlived the study")


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on_where_it_ended(tmp_path: Path) -> None:
    """On all cores; the workers of a killed study end with it."""
    arguments = ["simulate", "--synthetic", "pods=120", "--nodes", "6x4:64:512", "--seeds", "5", "--run-dir", "runs"]
    command = [sys.executable, "-m", "dralloc", *arguments, "--workers", "2", "-o", "json"]
    with child_process(command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True) as study:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("runs/run-*")):
            assert time.monotonic() < deadline, "no run was finished"
            time.sleep(0.01)
        study.kill()
        _wait_until_gone(study.pid)
    kept = len(list(tmp_path.glob("runs/run-*")))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == f"{kept} of 5 runs are finished already in runs\n"
    values = json.loads(done.stdout)
    assert [run["seed"] for run in values["runs"]] == [42, 43, 44, 45, 46]
    alone = json.loads(
        CliRunner().invoke(app, [*arguments[:-2], "--workers", "1", "-o", "json"], catch_exceptions=False).stdout
    )
    figures = ("seed", "placed", "unallocated_percent", "stranded_percent", "unplaced_by_size")
    assert [[run[key] for key in figures] for run in values["runs"]] == [
        [run[key] for key in figures] for run in alone["runs"]
    ], "the same, however many processes and attempts"
