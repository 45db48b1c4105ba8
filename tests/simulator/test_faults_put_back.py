"""The simulator finds faults that were fixed: each test undoes one fix and expects a violation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

import pytest

from dralloc.api.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.apiserver.objects import write_guards
from dralloc.apiserver.objects.store_view import StoreView
from dralloc.client.claim_patches import patch_claim_status
from dralloc.controllers import shared_informers
from dralloc.controllers.jobs import controller as jobs
from dralloc.simulator.soak import SoakFailed, soak
from dralloc.simulator.virtual_time import run_virtual
from dralloc.store import backup, etcd, local_store, sqlite_file
from dralloc.store.high_water_mark import Mark
from dralloc.store.interface import Watch

SEEDS = 40
STEPS = 400

pytestmark = pytest.mark.slow


def found(store: str, expected: str, *, first_seed: int) -> bool:
    """True if a seed ends in a violation of the expected kind. The first one does, until the simulation changes."""
    return any(re.search(expected, violation) for violation in violations(store, first_seed))


def violations(store: str, first_seed: int) -> Iterator[str]:
    for seed in range(first_seed, first_seed + SEEDS):
        try:
            run_virtual(soak(seed, steps=STEPS, store=store))
        except SoakFailed as failure:
            yield str(failure)


def test_holds_that_end_with_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(self: write_guards.Holds, *_: object) -> None:
        self.release()

    async def ready(self: write_guards.GuardedView[object]) -> None:
        await StoreView.ready(self._view, 1)

    swap = etcd.EtcdStore._swap

    async def unfenced(self: etcd.EtcdStore, key: str, expected: int, change: object, fences: object = ()) -> int:
        return await swap(self, key, expected, change)  # type: ignore[arg-type]

    monkeypatch.setattr(write_guards.Holds, "__exit__", release)
    monkeypatch.setattr(write_guards.GuardedView, "ready", ready)
    monkeypatch.setattr(etcd.EtcdStore, "_swap", unfenced)
    assert found("etcd", "allocated as a whole 2 times", first_seed=21)


def test_workloads_that_are_compared_by_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    def workload(self: jobs.JobKey) -> tuple[str, ConsumerReference]:
        return "", ConsumerReference(api_group="", resource="", name="", uid=self.uid)

    def workloads_of(claim: ResourceClaim) -> Iterator[tuple[str, ConsumerReference]]:
        return (
            ("", ConsumerReference(api_group="", resource="", name="", uid=each.uid))
            for each in claim.status.reserved_for
        )

    async def release(self: jobs.JobController, claims: Iterable[ResourceClaim], key: jobs.JobKey) -> None:
        for claim in claims:
            kept = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid != key.uid)
            await patch_claim_status(self._calls, claim, {"reservedFor": kept or None})

    indices = {**shared_informers._INDICES[jobs.CLAIMS], "workload": workloads_of}
    monkeypatch.setattr(shared_informers, "_INDICES", {**shared_informers._INDICES, jobs.CLAIMS: indices})
    monkeypatch.setattr(jobs.JobKey, "workload", property(workload))
    monkeypatch.setattr(jobs.JobController, "_release", release)
    assert found("memory", "is no longer reserved for job", first_seed=1)


def test_a_restore_without_a_new_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_of_history(newest_known: int, now: datetime) -> int:
        return 2

    async def watch(self: local_store.LocalStore, prefix: str, *, after_revision: int) -> Watch:
        return self._hub.subscribe(prefix, after_revision=min(after_revision, self._map.revision))

    monkeypatch.setattr(backup, "first_of_history", first_of_history)
    monkeypatch.setattr(sqlite_file, "first_of_history", first_of_history)
    monkeypatch.setattr(local_store.LocalStore, "watch", watch)
    assert found("sqlite", "of the time before a restore|the store is back at revision", first_seed=0)


def test_a_log_without_a_high_water_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: sqlite_file.SqliteFile, mark: Mark | None, found: Mark) -> None:
        return None

    monkeypatch.setattr(sqlite_file.SqliteFile, "_missing", missing)
    assert found("sqlite", "the store is back at revision", first_seed=0)
