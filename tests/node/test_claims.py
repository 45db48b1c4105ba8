"""Preparing and unpreparing with failing drivers and crashing agents: no claim is forgotten, no calls are concurrent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node.checkpoint import ClaimRecord, ReportedDevice, read_checkpoint
from dralloc.node.claim_cache import ClaimCache
from dralloc.node.claims import ClaimsFailed, NodeClaims
from dralloc.node.driver_calls import CallFailed
from dralloc.node.metrics import NodeMetrics
from dralloc.primitives.errors import NotFound
from dralloc.primitives.metrics import exposition
from dralloc.testing.builders import POOL, allocation, claim, held
from tests.support.workloads import existing, pod, seen

DRIVERS = ("gpu.example.com", "nic.example.com")


class ModelDrivers:
    """Two drivers that record prepared claims, and check that every call is allowed."""

    def __init__(self, path: Path, random: Random) -> None:
        self._path = path
        self._random = random
        self.failure_rate = 0.0
        self.holds: set[tuple[str, str]] = set()
        self.calls: list[tuple[str, str, tuple[str, ...]]] = []
        self._busy: set[tuple[str, str]] = set()

    async def prepare(
        self, driver: str, claims: Sequence[ClaimRecord], shared: Mapping[str, str]
    ) -> Mapping[str, tuple[ReportedDevice, ...]]:
        await self._work("prepare", driver, claims)
        # The checkpoint has every claim that the driver has prepared.
        on_disk = {record.uid: record for record in read_checkpoint(self._path)}
        for each in claims:
            assert driver in on_disk[each.uid].drivers, "prepared and not on disk"
            self.holds.add((driver, each.uid))
        self._maybe_fail()
        return {each.uid: (ReportedDevice(pool=POOL, device=f"device-of-{each.name}"),) for each in claims}

    async def unprepare(self, driver: str, claims: Sequence[ClaimRecord]) -> None:
        await self._work("unprepare", driver, claims)
        self._maybe_fail()
        self.holds -= {(driver, each.uid) for each in claims}

    async def _work(self, what: str, driver: str, claims: Sequence[ClaimRecord]) -> None:
        keys = {(driver, each.uid) for each in claims}
        assert not keys & self._busy, "two calls about one claim at once"
        self.calls.append((what, driver, tuple(each.uid for each in claims)))
        self._busy |= keys
        try:
            for _ in range(self._random.randrange(4)):
                await asyncio.sleep(0)
            self._maybe_fail()
        finally:
            self._busy -= keys

    def _maybe_fail(self) -> None:
        if self._random.random() < self.failure_rate:
            raise CallFailed("bad luck")


class Node:
    """The claims of a node whose process can be killed at any time."""

    def __init__(self, path: Path, api: Mapping[str, ResourceClaim], drivers: ModelDrivers) -> None:
        self._path, self._api, self._drivers = path, api, drivers
        self.start()

    def start(self) -> None:
        self.book = ClaimCache(self._path)
        self.metrics = NodeMetrics(self.book.records)
        self.claims = NodeClaims(self.book, self._drivers, self.metrics, fetch=self.fetch, is_registered=lambda _: True)
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: asyncio.Future[None] | object) -> None:
        self.tasks.append(asyncio.ensure_future(work))  # type: ignore[arg-type]

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.book.close()

    async def fetch(self, key: ObjectKey) -> ResourceClaim:
        if key.name not in self._api:
            raise NotFound(f"no {key}")
        return self._api[key.name]


def world(pods: int, claims: int, random: Random) -> tuple[list[Pod], dict[str, ResourceClaim]]:
    """Pods that use some of the claims; a claim has devices of one driver or of both."""
    made = [
        seen(pod(f"p{n}", {f"c{m}": existing(f"c{m}") for m in random.sample(range(claims), random.randint(1, 2))}))
        for n in range(pods)
    ]
    api = {}
    for number in range(claims):
        results = [
            held(f"device-of-c{number}", driver=driver) for driver in random.sample(DRIVERS, random.randint(1, 2))
        ]
        each = claim(f"c{number}", allocation=allocation(*results))
        status = msgspec.structs.replace(each.status, reserved_for=tuple(map(pod_reference, made)))
        api[each.metadata.name] = msgspec.structs.replace(each, status=status)
    return made, api


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_claims_survive_failures_and_crashes_without_concurrent_calls(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    pods, api = world(pods=5, claims=3, random=random)
    path = tmp_path / "state"

    async def scenario() -> None:
        drivers = ModelDrivers(path, random)
        node = Node(path, api, drivers)
        drivers.failure_rate = 0.2
        for _ in range(40):
            chosen = random.choice(pods)
            match random.randrange(10):
                case 0:
                    await node.kill()
                    node.start()
                case 1 | 2 | 3 | 4:
                    node.spawn(node.claims.prepare(chosen))
                case 5 | 6 | 7:
                    node.spawn(node.claims.unprepare(chosen.metadata.uid))
                case _:
                    for _ in range(random.randrange(6)):
                        await asyncio.sleep(0)
        for outcome in await asyncio.gather(*node.tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, (ClaimsFailed, asyncio.CancelledError)), outcome
        await node.kill()

        drivers.failure_rate = 0.0
        node.start()
        held_on_disk = {(driver, record.uid) for record in node.book.records() for driver in record.drivers}
        assert drivers.holds <= held_on_disk
        for uid in node.book.pods():
            await node.claims.unprepare(uid)
        assert drivers.holds == set()
        assert read_checkpoint(path) == ()
        node.book.close()

    asyncio.run(scenario())


def alone(tmp_path: Path, pods: int = 2, drivers: int = 1) -> tuple[list[Pod], dict[str, ResourceClaim]]:
    made = [seen(pod(f"p{n}", {"c": existing("c")})) for n in range(pods)]
    each = claim("c", allocation=allocation(*(held("device-of-c", driver=DRIVERS[n]) for n in range(drivers))))
    status = msgspec.structs.replace(each.status, reserved_for=tuple(map(pod_reference, made)))
    return made, {"c": msgspec.structs.replace(each, status=status)}


def test_a_shared_claim_is_prepared_once_and_unprepared_with_its_last_pod(tmp_path: Path) -> None:
    async def scenario() -> None:
        pods, api = alone(tmp_path, pods=300)
        drivers = ModelDrivers(tmp_path / "state", Random(1))
        node = Node(tmp_path / "state", api, drivers)
        await asyncio.gather(*(node.claims.prepare(each) for each in pods))
        assert [what for what, _, _ in drivers.calls] == ["prepare"]
        (record,) = read_checkpoint(tmp_path / "state")
        assert len(record.pods) == 300
        assert 'dra_resource_claims_in_use{driver_name="<any>"} 1' in exposition(node.metrics.all())
        first, *others = pods
        await asyncio.gather(*(node.claims.unprepare(each.metadata.uid) for each in others))
        assert [what for what, _, _ in drivers.calls] == ["prepare"]
        await node.claims.unprepare(first.metadata.uid)
        await node.claims.unprepare(first.metadata.uid)
        assert [what for what, _, _ in drivers.calls] == ["prepare", "unprepare"]
        assert node.claims.of_pod(first.metadata.uid) == {}
        assert 'dra_resource_claims_in_use{driver_name="<any>"} 0' in exposition(node.metrics.all())
        node.book.close()

    asyncio.run(scenario())


def test_a_claim_that_is_being_unprepared_is_refused_to_new_pods(tmp_path: Path) -> None:
    async def scenario() -> None:
        pods, api = alone(tmp_path)
        drivers = ModelDrivers(tmp_path / "state", Random(1))
        node = Node(tmp_path / "state", api, drivers)
        await node.claims.prepare(pods[0])
        drivers.failure_rate = 1.0
        with pytest.raises(ClaimsFailed, match="bad luck"):
            await node.claims.unprepare(pods[0].metadata.uid)
        drivers.failure_rate = 0.0
        with pytest.raises(ClaimsFailed, match="ResourceClaim c is being unprepared"):
            await node.claims.prepare(pods[1])
        await node.claims.unprepare(pods[0].metadata.uid)
        await node.claims.prepare(pods[1])
        node.book.close()

    asyncio.run(scenario())


def test_drivers_are_called_again_after_a_restart_and_a_failed_one_does_not_undo_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        pods, api = alone(tmp_path, drivers=2)
        drivers = ModelDrivers(tmp_path / "state", Random(1))
        node = Node(tmp_path / "state", api, drivers)
        await node.claims.prepare(pods[0])
        await node.kill()
        node.start()
        (record,) = node.book.records()
        assert {driver for driver, _ in record.devices()} == set(DRIVERS)
        await node.claims.prepare(pods[0])
        assert [what for what, _, _ in drivers.calls] == ["prepare"] * 4
        node.book.close()

    asyncio.run(scenario())


def test_a_refused_pod_leaves_no_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        (allowed, stranger), api = alone(tmp_path)
        (entry,) = api["c"].status.reserved_for[:1]
        status = msgspec.structs.replace(api["c"].status, reserved_for=(entry,))
        api["c"] = msgspec.structs.replace(api["c"], status=status)
        drivers = ModelDrivers(tmp_path / "state", Random(1))
        node = Node(tmp_path / "state", api, drivers)
        with pytest.raises(ClaimsFailed, match="not allowed to use"):
            await node.claims.prepare(stranger)
        with pytest.raises(ClaimsFailed, match="fetch ResourceClaim absent: no default/absent"):
            await node.claims.prepare(seen(pod("p", {"c": existing("absent")})))
        assert not (tmp_path / "state").exists()
        assert not drivers.calls
        await node.claims.prepare(allowed)
        assert (
            'dra_operations_duration_seconds_count{operation_name="PrepareResources",is_error="true"} 2'
            in exposition(node.metrics.all())
        )
        node.book.close()

    asyncio.run(scenario())


def test_no_driver_is_called_while_the_checkpoint_cannot_be_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        (allowed, _), api = alone(tmp_path)
        path = tmp_path / "state"
        drivers = ModelDrivers(path, Random(1))
        node = Node(path, api, drivers)
        blocked = tmp_path / f".state.{os.getpid()}"
        blocked.mkdir()
        with pytest.raises(ClaimsFailed, match="cannot write the node checkpoint"):
            await node.claims.prepare(allowed)
        assert not drivers.calls
        blocked.rmdir()
        await node.claims.prepare(allowed)
        node.book.close()

    asyncio.run(scenario())
