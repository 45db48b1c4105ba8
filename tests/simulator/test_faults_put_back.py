"""The simulator finds faults that were fixed: each test undoes one fix and expects a violation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dralloc.client.claim_patches import patch_claim
from dralloc.controllers import shared_informers
from dralloc.controllers.jobs import controller as jobs
from dralloc.controllers.jobs.plan import SHARED_CLAIMS
from dralloc.kube.batch_v1 import Job
from dralloc.kube.pod_claims import is_group
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.scheduling_v1beta1 import API_VERSION
from dralloc.scheduler import gang_attempts
from dralloc.scheduler.decide import gang_cycle
from dralloc.scheduler.decide.gang_cycle import GangRequest
from dralloc.scheduler.decide.useless_reservations import UselessReservations
from dralloc.server.read.store_view import StoreView
from dralloc.server.store import backup, etcd, etcd_history, local_store, sqlite_file
from dralloc.server.store.high_water_mark import Mark
from dralloc.server.store.interface import Watch
from dralloc.server.write import write_guards
from dralloc.server.write.claim_use_guard import ClaimUseGuard
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.documents import RESOURCE, Document, claim_spec, document, exactly
from tests.simulator.gang_checker import TORN_MAX_S
from tests.simulator.network import Faults
from tests.simulator.random_devices import NIC
from tests.simulator.random_workload import RandomWorkload
from tests.simulator.simulated_gates import GATES
from tests.simulator.soak import SoakFailed, soak

SEEDS = 40
STEPS = 400
# Between an API server and etcd: a write is stored late, and its answer may be lost.
UNCERTAIN = Faults(lose_answer=0.2, slow=1.0, delay_max_s=2.0)

pytestmark = pytest.mark.slow


def found(expected: str, first: int = 0) -> bool:
    """True if a seed on SQLite ends in a violation of the expected kind. The first one does, until the simulation changes."""
    return any(re.search(expected, violation) for violation in violations(first))


def violations(first: int) -> Iterator[str]:
    for seed in range(first, SEEDS):
        try:
            run_virtual(soak(seed, steps=STEPS, store="sqlite", with_gangs=False))
        except SoakFailed as failure:
            yield str(failure)


async def contention(rounds: int) -> str:
    """The violations of two schedulers, each with an API server of its own, that want the same devices while etcd answers late or
    not at all. The fault needs two rounds on average.
    """
    random = Random(1)
    async with SimulatedCluster.started(random, Faults(), store="etcd", schedulers=2) as cluster:
        await RandomWorkload(cluster, random).prepare()
        await asyncio.sleep(30)
        for number in range(rounds):
            pods = await create_contenders(cluster, number)
            for server in cluster.servers:
                cluster.network.disturb(server.name, "etcd", UNCERTAIN)
            await asyncio.sleep(20)
            if cluster.violations():
                break
            await cluster.network.heal()
            await asyncio.sleep(10)
            for name in pods:
                await cluster.client.delete(Pod, name)
            await asyncio.sleep(10)
        return "; ".join(cluster.violations())


async def create_contenders(cluster: SimulatedCluster, number: int) -> list[str]:
    """Pods with a claim each. Both schedulers begin with them a second later."""
    for scheduler, server in zip(cluster.scheduler_names, reversed(cluster.servers), strict=True):
        cluster.network.cut(scheduler, server.name, 30)
        cluster.pause(scheduler, 6)
    names = [f"pod-{number}-{place}" for place in range(12)]
    for place, name in enumerate(names):
        spec = {
            "containers": [{"name": "c", "image": "x"}],
            "schedulerName": cluster.scheduler_names[place % 2],
            "resourceClaims": [{"name": "own", "resourceClaimTemplateName": "partition"}],
        }
        await cluster.client.create(document("v1", "Pod", name, "default", spec=spec))
    await asyncio.sleep(5)
    return names


def test_holds_that_end_with_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(self: write_guards.Holds, *_: object) -> None:
        self.release()

    async def ready(self: write_guards.GuardedView[Any, Any]) -> None:
        await StoreView.ready(self._view, 1)

    swap = etcd.EtcdStore._swap

    async def unfenced(self: etcd.EtcdStore, key: str, expected: int, change: object, *_: object) -> int:
        return await swap(self, key, expected, change, ())  # type: ignore[arg-type]

    assert run_virtual(contention(3)) == ""
    monkeypatch.setattr(write_guards.Holds, "__exit__", release)
    monkeypatch.setattr(write_guards.GuardedView, "ready", ready)
    monkeypatch.setattr(etcd.EtcdStore, "_swap", unfenced)
    assert "allocated as a whole 2 times" in run_virtual(contention(20))


async def wrong_reference() -> str:
    """A job is scaled down to no pods, and a claim of another namespace has its UID under another name."""
    random = Random(1)
    async with SimulatedCluster.started(random, Faults(), schedulers=1) as cluster:
        await RandomWorkload(cluster, random).prepare()
        await asyncio.sleep(30)
        spec = {"parallelism": 1, "completions": 2, "template": {"spec": pod_spec(cluster, "job")}}
        shared = {SHARED_CLAIMS: "job=nic"}
        await cluster.client.create(document("batch/v1", "Job", "job", "default", spec=spec, annotations=shared))
        await asyncio.sleep(30)
        job = await cluster.client.patch(Job, "job", {"spec": {"parallelism": 0}})
        await asyncio.sleep(60)
        (claim,) = cluster.objects().claims
        assert [each.name for each in claim.status.reserved_for] == ["job"], "the job has not finished"
        reference = {"apiGroup": "batch", "resource": "jobs", "name": "wrong", "uid": job.metadata.uid}
        form = {**claim_spec(exactly(NIC, bandwidth="1G")), "reservedFor": reference}
        await cluster.client.create(document(RESOURCE, "ResourceClaim", "wrong", "other", spec=form))
        await cluster.client.create(document("v1", "Pod", "wrong", "other", spec=pod_spec(cluster, "wrong")))
        await asyncio.sleep(30)
        return "; ".join(cluster.violations())


def pod_spec(cluster: SimulatedCluster, claim: str) -> Document:
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "x"}],
        "schedulerName": cluster.scheduler_names[0],
        "resourceClaims": [{"name": "shared", "resourceClaimName": claim}],
    }


def test_workloads_that_are_compared_by_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    def workload(self: jobs.JobKey) -> tuple[str, ConsumerReference]:
        return "", ConsumerReference(api_group="", resource="", name="", uid=self.uid)

    def workloads_of(claim: ResourceClaim) -> Iterator[tuple[str, ConsumerReference]]:
        for each in claim.status.reserved_for:
            by_uid = ConsumerReference(api_group="", resource="", name="", uid=each.uid)
            yield (claim.metadata.namespace, each) if is_group(each) else ("", by_uid)

    async def release(self: jobs.JobController, claims: Iterable[ResourceClaim], key: jobs.JobKey) -> None:
        for claim in claims:
            kept = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid != key.uid)
            await patch_claim(self._calls, claim, status={"reservedFor": kept or None})

    assert run_virtual(wrong_reference()) == ""
    indices = {**shared_informers._INDICES[jobs.CLAIMS], "workload": workloads_of}
    monkeypatch.setattr(shared_informers, "_INDICES", {**shared_informers._INDICES, jobs.CLAIMS: indices})
    monkeypatch.setattr(jobs.JobKey, "workload", property(workload))
    monkeypatch.setattr(jobs.JobController, "_release", release)
    assert "is no longer reserved for job" in run_virtual(wrong_reference())


def test_a_restore_without_a_new_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_of_history(newest_known: int, now: datetime) -> int:
        return 2

    async def watch(self: local_store.LocalStore, prefix: str, *, after_revision: int) -> Watch:
        return self._hub.subscribe(prefix, after_revision=min(after_revision, self._map.revision))

    monkeypatch.setattr(backup, "first_of_history", first_of_history)
    monkeypatch.setattr(sqlite_file, "first_of_history", first_of_history)
    monkeypatch.setattr(local_store.LocalStore, "watch", watch)
    assert found("of the time before a restore|the store is back at revision")


async def restores_of_etcd(rounds: int) -> str:
    """The violations of pods that are created between restores of one backup."""
    random = Random(1)
    async with SimulatedCluster.started(random, Faults(), store="etcd", schedulers=1) as cluster:
        await RandomWorkload(cluster, random).prepare()
        await asyncio.sleep(30)
        await cluster.backend.back_up()
        for number in range(rounds):
            spec = {"containers": [{"name": "c", "image": "x"}], "schedulerName": cluster.scheduler_names[0]}
            for place in range(5):
                await cluster.client.create(document("v1", "Pod", f"pod-{number}-{place}", "default", spec=spec))
                await asyncio.sleep(0.1)
            await cluster.restore()
            await asyncio.sleep(20)
            if cluster.violations():
                break
        return "; ".join(cluster.violations())


def test_a_restored_etcd_that_keeps_its_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_of_history(newest_known: int, now: datetime) -> int:
        return 0

    assert run_virtual(restores_of_etcd(2)) == ""
    monkeypatch.setattr(etcd_history, "first_of_history", first_of_history)
    # Lists, watches or the order of changes show it first: what the nodes do meanwhile decides that.
    assert re.search(r"the next change is|it was \d+ before the call", run_virtual(restores_of_etcd(10)))


def test_a_log_without_a_high_water_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loss(path: Path, mark: Mark | None, found: Mark) -> None:
        return None

    monkeypatch.setattr(sqlite_file, "loss_after_mark", no_loss)
    assert found("the store is back at revision")


@asynccontextmanager
async def cluster_with_gang(size: int) -> AsyncIterator[SimulatedCluster]:
    """One gang, all of whose members need a card each, and no faults. All nodes together have 9 cards."""
    random = Random(1)
    async with SimulatedCluster.started(random, Faults(), schedulers=1) as cluster:
        await RandomWorkload(cluster, random).prepare()
        await asyncio.sleep(30)
        spec = {
            "containers": [{"name": "c", "image": "x"}],
            "schedulerName": cluster.scheduler_names[0],
            "resourceClaims": [{"name": "own", "resourceClaimTemplateName": "whole"}],
            "schedulingGroup": {"podGroupName": "gang"},
        }
        policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
        await cluster.client.create(document(API_VERSION, "PodGroup", "gang", "default", spec=policy))
        for number in range(size):
            await cluster.client.create(document("v1", "Pod", f"gang-{number}", "default", spec=spec))
        yield cluster


async def what_is_wrong(cluster: SimulatedCluster) -> str:
    await asyncio.sleep(30)
    cluster.time_passed(TORN_MAX_S + 1)
    return "; ".join(cluster.violations())


def test_members_of_a_gang_that_are_placed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def too_large() -> str:
        async with cluster_with_gang(10) as cluster:
            return await what_is_wrong(cluster)

    assert run_virtual(too_large()) == ""
    monkeypatch.setattr(GangRequest, "needed", property(lambda self: min(self.min_count - self.scheduled, 1)))
    assert "of 10 members have nodes" in run_virtual(too_large())


def test_gang_writes_that_are_not_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler stops after the first claim, and a member goes."""

    async def interrupted() -> str:
        async with cluster_with_gang(3) as cluster:
            while not any(claim.status.allocation for claim in cluster.objects().claims):
                await asyncio.sleep(0.001)
            (scheduler,) = cluster.scheduler_names
            await cluster.kill(scheduler)
            await cluster.client.delete(Pod, "gang-2")
            cluster.start(scheduler, GATES)
            return await what_is_wrong(cluster)

    def nothing(*_: object) -> Iterator[UselessReservations]:
        return iter(())

    assert run_virtual(interrupted()) == ""
    monkeypatch.setattr(gang_cycle, "reservations_of_gang", nothing)
    monkeypatch.setattr(gang_attempts, "reservations_of_gang", nothing)
    assert "no member has a node" in run_virtual(interrupted())


def test_a_claim_that_is_removed_under_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users delete claims in every way that there is, also without their finalizers."""

    async def unguarded(*_: object) -> None:
        return None

    monkeypatch.setattr(ClaimUseGuard, "hold_removal", unguarded)
    assert found(r"runs on \S+ and claim \S+ is not allocated", first=3)
