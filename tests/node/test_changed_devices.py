"""While no agent runs, a restored backup undoes the allocation of a running pod, and the pod gets other devices on the same node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from dralloc.client.api_calls import ApiCalls
from dralloc.client.event_recorder import EventRecorder
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node.checkpoint import ClaimRecord, ReportedDevice
from dralloc.node.claim_cache import ClaimCache
from dralloc.node.claims import NodeClaims, PodStage
from dralloc.node.driver_calls import CallFailed
from dralloc.node.metrics import NodeMetrics
from dralloc.node.pod_sync import PodSync, PodSyncContext
from dralloc.node.pod_view import NODE_PODS, NodePod
from dralloc.node.simulated_runtime import SimulatedRuntime
from dralloc.testing.builders import allocation, claim, held
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.api_server import TOKEN, api_application
from tests.support.workloads import existing, pod

KEY = ObjectKey("default", "p")


class Drivers:
    """A driver that records its calls, with the device of the claim at that moment."""

    def __init__(self, share_id: str | None = None) -> None:
        self.claim: ResourceClaim | None = claim("c", allocation=allocation(held("gpu-0", share_id=share_id)))
        self.calls: list[str] = []
        self.fail = False
        # How long the server takes to answer with the claim.
        self.answers_after_s = 0.0

    def allocate(self, device: str, share_id: str | None = None) -> None:
        assert self.claim is not None
        status = replace(self.claim.status, allocation=allocation(held(device, share_id=share_id)))
        self.claim = replace(self.claim, status=status)

    def replace_claim(self, uid: str) -> None:
        """A backup undoes the creation of the claim, and its controller creates it again with the same name."""
        assert self.claim is not None
        self.claim = replace(self.claim, metadata=replace(self.claim.metadata, uid=uid))

    async def fetch(self, _: ObjectKey) -> ResourceClaim:
        await asyncio.sleep(self.answers_after_s)
        if self.claim is None:
            raise TransportError("the server does not answer")
        return self.claim

    async def prepare(
        self, driver: str, claims: Sequence[ClaimRecord], shared: Mapping[str, str]
    ) -> Mapping[str, tuple[ReportedDevice, ...]]:
        assert self.claim is not None
        assert self.claim.status.allocation is not None
        if self.fail:
            raise CallFailed("the driver does not answer")
        (result,) = self.claim.status.allocation.devices.results
        self.calls.append(f"prepare {result.device}")
        device = ReportedDevice(pool=result.pool, device=result.device, share_id=result.share_id)
        return {each.uid: (device,) for each in claims}

    async def unprepare(self, driver: str, claims: Sequence[ClaimRecord]) -> None:
        if self.fail:
            raise CallFailed("the driver does not answer")
        (record,) = claims
        devices = record.drivers[driver].devices
        self.calls.append(f"unprepare {devices[0].device if devices else 'what may be prepared'}")


class Node:
    def __init__(self, calls: ApiCalls, path: Path, drivers: Drivers) -> None:
        self.calls, self.drivers, self._path = calls, drivers, path

    def start(self) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        self.book = ClaimCache(self._path)
        events = EventRecorder(self.calls, resource_for(Event), component="node", clock=clock)
        claims = NodeClaims(
            self.book,
            self.drivers,
            NodeMetrics(self.book.records),
            fetch=self.drivers.fetch,
            is_registered=lambda _: True,
        )
        self.sync = PodSync(
            PodSyncContext(
                calls_of_node=lambda _: self.calls,
                claims=claims,
                runtime=SimulatedRuntime(clock),
                events=events,
                clock=clock,
                shows_health=False,
            )
        )
        self._running = asyncio.gather(self.sync.run(2), events.run())

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self.book.close()

    async def restart(self) -> None:
        """The next agent, which has just listed the pod."""
        await self.stop()
        self.start()
        self.sync.pod_changed(None, await self.pod())

    async def create(self) -> NodePod:
        """The pod as the scheduler has bound it."""
        document = pod("p", {"gpu": existing("c")}, node="n")
        created: NodePod = await self.calls.create(NODE_PODS, document, namespace="default")
        assert self.drivers.claim is not None
        status = replace(self.drivers.claim.status, reserved_for=(pod_reference(created),))
        self.drivers.claim = replace(self.drivers.claim, status=status)
        return created

    async def pod(self) -> NodePod:
        return await self.calls.get(NODE_PODS, KEY)


@asynccontextmanager
async def running_node(path: Path, *, fails: bool = False, share_id: str | None = None) -> AsyncIterator[Node]:
    """A node with a pod that runs with device gpu-0, or waits for its driver."""
    async with api_application(clock=VirtualClock(asyncio.get_running_loop())) as application:
        node = Node(ApiCalls(InProcessTransport(application, token=TOKEN)), path, Drivers(share_id))
        node.drivers.fail = fails
        node.start()
        try:
            node.sync.pod_changed(None, await node.create())
            await asyncio.sleep(5)
            assert (await node.pod()).status.phase == ("Pending" if fails else "Running")
            yield node
        finally:
            await node.stop()


def recreated(drivers: Drivers) -> None:
    drivers.replace_claim("recreated")


def reallocated(drivers: Drivers) -> None:
    drivers.allocate("gpu-1")


def unchanged(_: Drivers) -> None:
    """The claim is as it was."""


@pytest.mark.parametrize(
    ("change", "calls"),
    [
        (recreated, ["prepare gpu-0", "unprepare gpu-0", "prepare gpu-0"]),
        (reallocated, ["prepare gpu-0", "unprepare gpu-0", "prepare gpu-1"]),
        # A new agent asks the driver for the devices again, and the containers go on.
        (unchanged, ["prepare gpu-0", "prepare gpu-0"]),
    ],
)
def test_a_pod_starts_over_with_the_devices_that_it_has_now(
    tmp_path: Path, change: Callable[[Drivers], None], calls: list[str]
) -> None:
    async def main() -> None:
        async with running_node(tmp_path / "checkpoint") as node:
            change(node.drivers)
            await node.restart()
            await asyncio.sleep(60)
            assert node.drivers.calls == calls
            assert node.drivers.claim is not None
            assert [record.uid for record in node.book.records()] == [node.drivers.claim.metadata.uid]
            shown = await node.pod()
            assert shown.status.phase == "Running"
            assert node.sync.stage_of(shown.metadata.uid) is PodStage.ACTIVE
            events = (await node.calls.list_all(resource_for(Event)))[0]
            assert ("DevicesChanged" in {event.reason for event in events}) == (change is not unchanged)

    run_virtual(main())


def test_a_pod_with_another_share_of_its_device_starts_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path / "checkpoint", share_id="first") as node:
            node.drivers.allocate("gpu-0", "second")
            await node.restart()
            await asyncio.sleep(60)
            assert node.drivers.calls == ["prepare gpu-0", "unprepare gpu-0", "prepare gpu-0"]
            assert [device.share_id for _, device in node.book.records()[0].devices()] == ["second"]

    run_virtual(main())


def test_a_pod_whose_claims_cannot_be_read_goes_on_until_they_can(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path / "checkpoint") as node:
            known, node.drivers.claim = node.drivers.claim, None
            await node.restart()
            await asyncio.sleep(60)
            assert (await node.pod()).status.phase == "Running"
            node.drivers.claim = known
            node.drivers.allocate("gpu-1")
            await asyncio.sleep(600)
            assert node.drivers.calls == ["prepare gpu-0", "unprepare gpu-0", "prepare gpu-1"]

    run_virtual(main())


def test_a_pod_that_waits_for_its_driver_gets_the_claim_that_it_has_now(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path / "checkpoint", fails=True) as node:
            node.drivers.replace_claim("recreated")
            await node.restart()
            await asyncio.sleep(60)
            node.drivers.fail = False
            await asyncio.sleep(60)
            assert node.drivers.calls == ["unprepare what may be prepared", "prepare gpu-0"]
            assert (await node.pod()).status.phase == "Running"

    run_virtual(main())


def test_nothing_is_prepared_for_a_pod_that_goes_while_its_claims_are_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path / "checkpoint", fails=True) as node:
            node.drivers.fail, node.drivers.answers_after_s = False, 5
            await node.restart()
            await asyncio.sleep(2)
            node.sync.pod_changed(await node.pod(), None)
            await asyncio.sleep(60)
            assert node.drivers.calls == ["unprepare what may be prepared"]

    run_virtual(main())


def test_a_pod_starts_over_when_its_driver_answers_again(tmp_path: Path) -> None:
    """Its end does not wait for the driver; its new start does."""

    async def main() -> None:
        async with running_node(tmp_path / "checkpoint") as node:
            node.drivers.fail = True
            node.drivers.allocate("gpu-1")
            await node.restart()
            await asyncio.sleep(600)
            node.drivers.fail = False
            await asyncio.sleep(600)
            assert node.drivers.calls == ["prepare gpu-0", "unprepare gpu-0", "prepare gpu-1"]
            assert (await node.pod()).status.phase == "Running"

    run_virtual(main())


def test_a_pod_starts_over_whose_claim_others_kept_locked_until_it_had_ended(tmp_path: Path) -> None:
    """Pods that share the claim wait for its driver one after the other, each with the lock of the claim."""

    async def main() -> None:
        async with running_node(tmp_path / "checkpoint") as node:
            node.drivers.allocate("gpu-1")
            await node.restart()
            async with AsyncExitStack() as stack:
                await node.book.lock(stack, [ObjectKey("default", "c")])
                await asyncio.sleep(120)
            await asyncio.sleep(600)
            assert node.drivers.calls == ["prepare gpu-0", "unprepare gpu-0", "prepare gpu-1"]
            assert (await node.pod()).status.phase == "Running"

    run_virtual(main())
