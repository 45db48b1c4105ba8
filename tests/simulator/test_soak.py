"""Some steps of the soak test on every store. `make soak` runs more seeds and steps; docs/quality/track-record.md lists what they found."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from random import Random

import pytest

from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.documents import RESOURCE, claim_spec, document, exactly
from tests.simulator.network import Faults
from tests.simulator.random_devices import NIC
from tests.simulator.random_workload import RandomWorkload
from tests.simulator.soak import HARSH, STORES, soak

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


@pytest.mark.slow
def test_a_claim_whose_finalizer_was_removed_is_no_leak() -> None:
    """A user has removed it to delete the claim, and the deletion was refused: no controller deallocates the claim."""

    async def left() -> tuple[int, int]:
        async with SimulatedCluster.started(Random(1), Faults()) as cluster:
            workload = RandomWorkload(cluster, Random(1))
            await workload.prepare()
            claim, uses = claim_spec(exactly(NIC, bandwidth="1G")), [{"name": "c", "resourceClaimName": "c"}]
            await cluster.client.create(document(RESOURCE, "ResourceClaim", "c", "default", spec=claim))
            spec = {
                "containers": [{"name": "c", "image": "x"}],
                "schedulerName": cluster.scheduler_names[0],
                "resourceClaims": uses,
            }
            await cluster.client.create(document("v1", "Pod", "p", "default", spec=spec))
            await asyncio.sleep(60)
            await cluster.client.patch(ResourceClaim, "c", {"metadata": {"finalizers": None}})
            allocated = len(cluster.objects().claims)
            await workload.end_all()
            await asyncio.sleep(60)
            return allocated, len(cluster.objects().claims)

    assert run_virtual(left()) == (1, 0)


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
