"""Strategies of one's own, as objects and by the name of a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dralloc.cli.main import app
from dralloc.devices.snapshot import Snapshot
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.placement_strategy import NodeScorer, ScoringContext
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.state.node_state import NodeState
from dralloc.study import BadInput, NodeRow, cluster_of_rows, simulate, synthetic_trace
from dralloc.study.strategies import strategy_digest, strategy_of

CLUSTER = cluster_of_rows("three", [NodeRow(f"n{number}", 64_000, 262_144, 4) for number in range(3)])
FULL_FIRST = """\
from dralloc.scheduler.decide.strategies import ScoredBy


def score(scored):
    return 100 - 100 * scored.free_before["cpu"] // scored.node.offer.allocatable["cpu"]


FullFirst = ScoredBy("FullFirst", score)
"""


@dataclass
class LastNode:
    name: str = "LastNode"
    scale: int = 1
    reads_typical_pods: bool = False
    by_amounts: bool = False
    judges_all: bool = True
    falls_with_load: bool = False

    def scorer(self, requirements: PodRequirements, devices: DeviceJudge | None, context: ScoringContext) -> NodeScorer:
        return self

    def score(self, node: NodeState, snapshot: Snapshot) -> int:
        return 100 * (node.name == "n2")


def test_an_object_is_a_strategy() -> None:
    run = simulate(synthetic_trace("pods=3; devices=1; cores=1"), CLUSTER, LastNode())
    assert run.setting.strategy == "LastNode"
    assert set(run.pods["node"]) == {"n2"}


def test_a_strategy_of_a_file_is_compared_with_others(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FULL_FIRST)
    mix = ("--synthetic", "pods=4; devices=1; cores=1", "--nodes", "3x4:64:256")
    said = CliRunner().invoke(
        app, ["simulate", *mix, "--strategy", f"Spread,{path}:FullFirst", "--workers", "1", "-o", "json"]
    )
    assert [result["strategy"] for result in json.loads(said.stdout)["results"]] == ["Spread", "FullFirst"]
    run = simulate(synthetic_trace("pods=4; devices=1; cores=1"), CLUSTER, f"{path}:FullFirst")
    assert len(set(run.pods["node"])) == 1
    before = strategy_digest(f"{path}:FullFirst")
    path.write_text(FULL_FIRST.replace("100 - ", "99 - "))
    assert strategy_digest(f"{path}:FullFirst") != before, "a changed strategy is simulated again"


def test_strategies_of_one_name_cannot_be_compared(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(FULL_FIRST)
    both = f"{tmp_path}/one.py:FullFirst,{tmp_path}/two.py:FullFirst"
    said = CliRunner().invoke(app, ["simulate", "--synthetic", "", "--nodes", "1x1:1:1", "--strategy", both])
    assert said.stderr == "dralloc: two strategies have the name FullFirst\n"


@pytest.mark.parametrize(
    ("text", "named", "expected"),
    [
        ("x = 1\n", "x", "x is not a strategy"),
        ("x = 1\n", "y", "y is not a strategy"),
        ("1 / 0\n", "x", "ZeroDivisionError: division by zero"),
        ("def (\n", "x", "SyntaxError: "),
        (None, "x", "No such file or directory"),
    ],
)
def test_bad_strategies(tmp_path: Path, text: str | None, named: str, expected: str) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput) as caught:
        strategy_of(f"{path}:{named}")
    assert str(caught.value).startswith(f"{path}: {expected}")
