"""Some steps of the soak test on every store. `make soak` runs more seeds and steps; docs/track-record.md lists what they found."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from random import Random

import pytest

from dralloc.simulator.cluster import SimulatedCluster
from dralloc.simulator.network import Faults
from dralloc.simulator.random_workload import RandomWorkload
from dralloc.simulator.soak import HARSH, STORES, soak
from dralloc.simulator.virtual_time import run_virtual

STEPS = 120
STEPS_COMPARED = 80


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
    result = run_virtual(soak(seed, steps=STEPS, store=store, faults=faults, schedulers=schedulers, elected=elected))
    assert result.revisions > STEPS


async def simulate(seed: int, store: str) -> str:
    random = Random(seed)
    async with SimulatedCluster.started(random, Faults(), store=store, schedulers=2) as cluster:
        workload = RandomWorkload(cluster, random)
        await workload.prepare()
        cluster.network.faults = HARSH
        for _ in range(STEPS_COMPARED):
            await workload.act()
            await asyncio.sleep(random.uniform(0, 2))
        return cluster.digest()


def print_digest(seed: int, store: str) -> None:
    sys.stdout.write(run_virtual(simulate(seed, store)))


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_seed_determines_every_change(store: str) -> None:
    """Neither the order of sets of texts, nor that of memory addresses, nor the time, nor random bytes of the system have an influence.

    On SQLite, every byte of the files is compared: a difference shows in the changes only when a disk is full or damaged.
    """
    code = f"from tests.simulator.test_soak import print_digest; print_digest(7, {store!r})"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": hash_seed}, stdout=subprocess.PIPE
        )
        for hash_seed in ("1", "2")
    ]
    first, second = (run.communicate()[0] for run in runs)
    assert first, "it ended well"
    assert first == second
