"""Some hours of random life with faults, in seconds. `make soak` runs more seeds for longer; docs/track-record.md tells what they found."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from dralloc.simulator.checkers import StoredObjects
from dralloc.simulator.cluster import SimulatedCluster
from dralloc.simulator.network_faults import Faults
from dralloc.simulator.random_workload import RandomWorkload
from dralloc.simulator.soak import CALM, HARSH, soak
from dralloc.simulator.virtual_time import run_virtual


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "faults", "schedulers", "elected"),
    [(0, HARSH, 2, False), (15, HARSH, 2, False), (1, HARSH, 1, True), (2, CALM, 3, False)],
    ids=["harsh", "devices that change", "elected", "calm"],
)
def test_nothing_is_violated_nothing_leaks_and_nobody_is_forgotten(
    seed: int, faults: Faults, schedulers: int, elected: bool
) -> None:
    assert run_virtual(soak(seed, hours=1, faults=faults, schedulers=schedulers, elected=elected)) > 50


async def some_life(seed: int) -> StoredObjects:
    random = Random(seed)
    async with SimulatedCluster.started(random, HARSH, schedulers=2) as cluster:
        workload = RandomWorkload(cluster, random)
        await workload.prepare()
        for _ in range(40):
            await workload.act()
            await asyncio.sleep(random.uniform(0, 60))
        return await cluster.objects()


@pytest.mark.slow
def test_a_seed_repeats_to_the_letter() -> None:
    first = run_virtual(some_life(7))
    elsewhere: list[list[object]] = []
    for number in range(1, 6):
        # Nothing may depend on where in memory things lie, such as the order of a set of tasks.
        elsewhere.append([object() for _ in range(number * 7919)])
        assert run_virtual(some_life(7)) == first
