"""Gangs: nodes and devices of all members in one search, compared with an exhaustive solver."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from dralloc.devices.identity import ClaimId
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.work_allowance import WorkExceeded, work_allowance
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.gang_cycle import GangCycle, GangPlacement, GangRejection, GangRequest
from dralloc.scheduler.state.cluster_state import ClusterState
from tests.support.gang_objects import NOW, ZONE, ShareIds, check_placement, cluster_of, pods_of
from tests.support.plain_gangs import GangSolver, TooLarge, random_gang

SEEDS = int(os.environ.get("DRALLOC_GANG_SEEDS", "300"))


@pytest.mark.parametrize("start", range(0, SEEDS, 50))
def test_whether_random_gangs_fit(start: int) -> None:
    """The answer is never "budget used up" for gangs of this size, and always that of the exhaustive solver."""
    for seed in range(start, min(start + 50, SEEDS)):
        gang = random_gang(seed)
        try:
            expected = GangSolver(gang).fits()
        except TooLarge:
            continue
        state, gates = cluster_of(gang), FeatureGates.parse("")
        cycle = GangCycle(state, Cycle(state, gates), gates, ShareIds())
        request = GangRequest(pods_of(gang), gang.needed, topology_key=ZONE if gang.topology else None)
        decision = cycle.decide(request, NOW)
        assert isinstance(decision, GangPlacement) is expected, f"seed {seed}: {decision}"
        if isinstance(decision, GangPlacement):
            check_placement(gang, decision, state, seed)
        else:
            assert isinstance(decision, GangRejection)
            assert not decision.is_undecided, f"seed {seed}: {decision.message}"
            assert not any(claim.status.allocation for claim in _claims(state, gang.claims)), f"seed {seed}"


def test_a_decision_that_is_interrupted_assumes_nothing() -> None:
    """Wherever it is: the same decision with more work allowed is made on the same cluster."""
    interruptions = 0
    for seed in range(60):
        gang = random_gang(seed)
        for work in (0, 500, 3_000, 20_000):
            state, gates = cluster_of(gang), FeatureGates.parse("")
            cycle = GangCycle(state, Cycle(state, gates), gates, ShareIds())
            request = GangRequest(pods_of(gang), gang.needed, topology_key=ZONE if gang.topology else None)
            try:
                with work_allowance(work):
                    cycle.decide(request, NOW)
            except WorkExceeded:
                interruptions += 1
                assert not any(state.placed_pods.by_node().values()), f"seed {seed}, work {work}"
                assert not any(claim.status.allocation for claim in _claims(state, gang.claims)), f"seed {seed}"
                fresh = GangCycle(other := cluster_of(gang), Cycle(other, gates), gates, ShareIds())
                assert type(cycle.decide(request, NOW)) is type(fresh.decide(request, NOW)), f"seed {seed}, work {work}"
    assert interruptions > 20


def _claims(state: ClusterState, names: Iterable[str]) -> list[ResourceClaim]:
    found = (state.find_claim(ClaimId("default", name)) for name in names)
    return [claim for claim in found if claim is not None]
