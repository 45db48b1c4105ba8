"""Simulated hours with faults. `make soak` runs more seeds for longer; docs/track-record.md lists what they found."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from dralloc.simulator.checkers import StoredObjects
from dralloc.simulator.cluster import SimulatedCluster
from dralloc.simulator.network_faults import Faults
from dralloc.simulator.random_workload import RandomWorkload
from dralloc.simulator.soak import HARSH, soak
from dralloc.simulator.virtual_time import run_virtual


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "faults", "schedulers", "elected"),
    [(0, HARSH, 2, False), (15, HARSH, 2, False), (1, HARSH, 1, True), (2, Faults(), 3, False)],
    ids=["harsh", "devices that change", "elected", "calm"],
)
def test_no_violation_no_leak_and_no_stuck_pod(seed: int, faults: Faults, schedulers: int, elected: bool) -> None:
    assert run_virtual(soak(seed, hours=1, faults=faults, schedulers=schedulers, elected=elected)) > 50


async def simulate(seed: int) -> StoredObjects:
    random = Random(seed)
    async with SimulatedCluster.started(random, HARSH, schedulers=2) as cluster:
        workload = RandomWorkload(cluster, random)
        await workload.prepare()
        for _ in range(40):
            await workload.act()
            await asyncio.sleep(random.uniform(0, 60))
        return await cluster.objects()


@pytest.mark.slow
def test_a_seed_determines_the_result() -> None:
    first = run_virtual(simulate(7))
    elsewhere: list[list[object]] = []
    for number in range(1, 6):
        # The result must not depend on memory addresses, such as the order of a set of tasks.
        elsewhere.append([object() for _ in range(number * 7919)])
        assert run_virtual(simulate(7)) == first
