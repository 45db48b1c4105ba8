"""Node scores: which of the nodes that fit is best."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dralloc.scheduler.decide.node_fit import NodeRequirements
from dralloc.scheduler.decide.node_scores import RawScores, least_allocated, normalized, raw_scores
from dralloc.scheduler.state.pod_resources import resources_of
from tests.scheduler.pod_specs import node_state, spec
from tests.support.scheduled_cluster import node


def test_emptier_nodes_score_higher_and_pods_without_requests_count_as_something() -> None:
    needs = resources_of(spec())
    empty, loaded = node_state(node("a")), node_state(node("b"), *[spec()] * 10)
    assert least_allocated(needs, empty) > least_allocated(needs, loaded)
    # 100m of 4 cores, and 200Mi of 32Gi.
    assert least_allocated(needs, empty) == (97 + 99) // 2


def test_a_node_without_cpu_and_memory_scores_zero() -> None:
    assert least_allocated(resources_of(spec()), node_state({"metadata": {"name": "bare"}})) == 0


@dataclass(frozen=True)
class ScoreCase:
    id: str
    raws: tuple[RawScores, ...]
    want: tuple[int, ...]


SCORES = [
    ScoreCase("all equal: each is best", (RawScores(), RawScores(devices=0)), (500, 500)),
    ScoreCase("all equal, though not the first choice", (RawScores(devices=7),), (500,)),
    ScoreCase("first choice against second: all or nothing", (RawScores(devices=8), RawScores(devices=7)), (500, 300)),
    ScoreCase(
        "in between", (RawScores(devices=16), RawScores(devices=13), RawScores(devices=8)), (500, 300 + 2 * 62, 300)
    ),
    ScoreCase(
        "taints that are not wanted", (RawScores(taints=0), RawScores(taints=1), RawScores(taints=2)), (500, 350, 200)
    ),
    ScoreCase(
        "affinity, weighed against the best",
        (RawScores(affinity=80), RawScores(affinity=20), RawScores()),
        (700, 550, 500),
    ),
]


@pytest.mark.parametrize("case", SCORES, ids=lambda case: case.id)
def test_scores_are_normalized_over_the_fitting_nodes(case: ScoreCase) -> None:
    values = normalized(set(case.raws))
    assert tuple(values[raw] for raw in case.raws) == case.want


def test_raw_scores_count_taints_and_preferences() -> None:
    preferred = [
        {"weight": 30, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}},
        {"weight": 12, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}},
        {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}},
        {"weight": 90, "preference": {}},
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    taints = tuple({"key": key, "effect": "PreferNoSchedule"} for key in ("slow", "far"))
    found = node_state(node("a", labels={"zone": "east"}, taints=taints))
    wishes = NodeRequirements.of(spec(affinity=affinity, tolerations=[{"key": "far", "operator": "Exists"}]))
    assert raw_scores(wishes, found.offer) == RawScores(taints=1, affinity=35)
