"""Some steps of the soak test on every store. `make soak` runs more seeds and steps; docs/track-record.md lists what they found."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from dralloc.simulator.cluster import SimulatedCluster
from dralloc.simulator.history import StoredVersion
from dralloc.simulator.network import Faults
from dralloc.simulator.random_workload import RandomWorkload
from dralloc.simulator.soak import HARSH, STORES, soak
from dralloc.simulator.virtual_time import run_virtual

STEPS = 120


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    ("seed", "faults", "schedulers", "elected"),
    [(0, HARSH, 2, False), (1, HARSH, 1, True), (2, Faults(), 3, False)],
    ids=["harsh", "elected", "calm"],
)
def test_no_violation_no_leak_and_no_stuck_pod(
    store: str, seed: int, faults: Faults, schedulers: int, elected: bool
) -> None:
    revisions = run_virtual(soak(seed, steps=STEPS, store=store, faults=faults, schedulers=schedulers, elected=elected))
    assert revisions > STEPS


async def simulate(seed: int, store: str) -> dict[str, StoredVersion]:
    random = Random(seed)
    async with SimulatedCluster.started(random, Faults(), store=store, schedulers=2) as cluster:
        workload = RandomWorkload(cluster, random)
        await workload.prepare()
        cluster.network.faults = HARSH
        for _ in range(40):
            await workload.act()
            await asyncio.sleep(random.uniform(0, 6))
        return cluster.history.state


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_seed_determines_the_result(store: str) -> None:
    first = run_virtual(simulate(7, store))
    elsewhere: list[list[object]] = []
    for number in range(1, 4):
        # The result must not depend on memory addresses, such as the order of a set of tasks.
        elsewhere.append([object() for _ in range(number * 7919)])
        assert run_virtual(simulate(7, store)) == first
