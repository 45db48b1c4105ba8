"""The reconciliation of pods with what an informer lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from dralloc.client.api_calls import ApiCalls
from dralloc.client.event_recorder import EventRecorder
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node.pod_sync import PodSync, PodSyncContext
from dralloc.node.pod_view import NODE_PODS, NodePod
from dralloc.node.simulated.simulated_pods import CheckedClaims
from dralloc.node.simulated_runtime import PREFIX, SimulatedRuntime
from dralloc.node.timings import DEFAULT_TIMINGS
from dralloc.primitives.errors import NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.api_server import TOKEN, api_application

KEY = ObjectKey("default", "p")


class SlowClaims(CheckedClaims):
    """Claims whose preparation ends when it may."""

    def __init__(self, claims: Informer[ResourceClaim], gates: FeatureGates, may_end: asyncio.Event | None) -> None:
        super().__init__(claims, gates)
        self._may_end = may_end

    async def prepare(self, pod: Pod) -> None:
        if self._may_end is not None:
            await self._may_end.wait()
        await super().prepare(pod)


@asynccontextmanager
async def running_pod(
    clock: VirtualClock, *, run_s: int, host_ip: str = "", slow: asyncio.Event | None = None, **spec: object
) -> AsyncIterator[tuple[ApiCalls, PodSync, NodePod]]:
    """A synced pod whose container ends after some time; yields it as it was created."""
    async with api_application(clock=clock) as application:
        calls = ApiCalls(InProcessTransport(application, token=TOKEN))
        claims: Informer[ResourceClaim] = Informer()
        events = EventRecorder(calls, resource_for(Event), component="node", clock=clock)
        sync = PodSync(
            PodSyncContext(
                calls_of_node=lambda _: calls,
                claims=SlowClaims(claims, FeatureGates.defaults(), slow),
                runtime=SimulatedRuntime(clock),
                events=events,
                clock=clock,
                timings=DEFAULT_TIMINGS,
                shows_health=False,
                host_ip=host_ip,
            )
        )
        running = asyncio.gather(sync.run(2), events.run())
        document = {
            "metadata": {"name": "p", "annotations": {f"{PREFIX}run-seconds": str(run_s)}},
            "spec": {"nodeName": "n", "restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}], **spec},
        }
        created = await calls.create(NODE_PODS, document, namespace="default")
        sync.pod_changed(None, created)
        await asyncio.sleep(1)
        try:
            yield calls, sync, created
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def test_a_pod_does_not_start_without_its_claims_after_their_preparation_was_cancelled() -> None:
    """As by gRPC, which cancels the calls of a connection that is closed; here by a deletion that is not there any more."""

    async def main() -> list[str]:
        may_end = asyncio.Event()
        async with running_pod(VirtualClock(asyncio.get_running_loop()), run_s=5000, slow=may_end) as (
            calls,
            sync,
            created,
        ):
            metadata = replace(
                created.metadata, deletion_timestamp="2026-01-01T00:00:00Z", deletion_grace_period_seconds=30
            )
            terminating = replace(created, metadata=metadata)
            sync.pod_changed(created, terminating)
            sync.pod_changed(terminating, created)
            phases = []
            for _ in range(2):
                await asyncio.sleep(60)
                phases.append((await calls.get(NODE_PODS, KEY)).status.phase)
                may_end.set()
            return phases

    assert run_virtual(main()) == ["Pending", "Running"]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["its end", "its deletion"])
def test_a_pod_that_has_changed_is_left_alone_until_the_informer_shows_it(is_deleted: bool) -> None:
    async def main() -> tuple[NodePod, str]:
        async with running_pod(VirtualClock(asyncio.get_running_loop()), run_s=5) as (calls, sync, created):
            if is_deleted:
                await calls.delete(NODE_PODS, KEY)
            known = await calls.get(NODE_PODS, KEY)
            changed = await calls.patch(NODE_PODS, KEY, {"metadata": {"labels": {"a": "b"}}})
            sync.pod_changed(created, known)
            await asyncio.sleep(60)
            assert await calls.get(NODE_PODS, KEY) == changed
            sync.pod_changed(known, changed)
            await asyncio.sleep(60)
            try:
                return changed, (await calls.get(NODE_PODS, KEY)).status.phase
            except NotFound:
                return changed, "gone"

    changed, end = run_virtual(main())
    assert changed.status.phase == "Running"
    assert end == ("gone" if is_deleted else "Succeeded")


def test_a_pod_that_is_finished_does_not_begin_again() -> None:
    """Its claims were missing, so that it never ran, and another program has set its end."""

    async def main() -> str:
        claims = [{"name": "e", "resourceClaimName": "missing"}]
        clock = VirtualClock(asyncio.get_running_loop())
        async with running_pod(clock, run_s=5, resourceClaims=claims) as (calls, sync, created):
            failed = await calls.patch(NODE_PODS, KEY, {"status": {"phase": "Failed"}}, subresource="status")
            sync.pod_changed(created, failed)
            await asyncio.sleep(60)
            return (await calls.get(NODE_PODS, KEY)).status.phase

    assert run_virtual(main()) == "Failed"


def test_a_status_that_is_too_large_for_the_server_is_an_event_of_the_pod() -> None:
    async def main() -> Event:
        clock = VirtualClock(asyncio.get_running_loop())
        async with running_pod(clock, run_s=5, host_ip="1" * 4_000_000) as (calls, _, _):
            events, _ = await calls.list_all(resource_for(Event))
            event: Event = events[0]
            return event

    event = run_virtual(main())
    assert (event.reason, event.involved_object.name) == ("StatusRefused", KEY.name)
    assert event.message.startswith("the API server refuses the status of the pod, which is shown as it was before: ")
