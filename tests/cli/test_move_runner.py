"""Moves of `dralloc defrag --apply`: a pod is evicted in the version that was read, and where the plan saw it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dralloc.answers.cluster_objects import StatedScheduler
from dralloc.answers.movable_pods import PlaceHolds
from dralloc.answers.move_search import MovedPod, PlannedMove
from dralloc.cli.move_runner import MoveFailed, MoveRunner
from dralloc.client.api_calls import ApiCalls
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.client.typed_resource import ObjectKey, version_of
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.features import FeatureGates
from tests.support.api_server import TOKEN, api_application
from tests.support.relay_transport import RelayTransport

PODS = resource_for(Pod)
KEY = ObjectKey("default", "p")


class MovingTransport(RelayTransport):
    """Binds pods that are created, as a scheduler does. The label of the pod changes `changes` times before an eviction arrives."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.calls = ApiCalls(inner)
        self.changes = 0
        self.preconditions: list[dict[str, str]] = []

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.path.endswith("/eviction"):
            self.preconditions.append(msgspec.json.decode(request.body or b"")["deleteOptions"]["preconditions"])
            if len(self.preconditions) <= self.changes:
                label = {"metadata": {"labels": {"change": str(len(self.preconditions))}}}
                await self.calls.patch(PODS, KEY, label)
        answer = await super().send(request)
        if request.method == "POST" and request.path.endswith("/pods"):
            await self.calls.post(PODS, KEY, "binding", {"target": {"kind": "Node", "name": "n2"}})
        return answer


async def move(transport: MovingTransport, pod: Pod) -> None:
    runner = MoveRunner(transport, "default", FeatureGates.defaults(), lambda _: None, 60, StatedScheduler())
    moved = MovedPod(pod=pod, node="n2", before=frozenset(), after=frozenset())
    await runner._move(PlannedMove(pods=(moved,), holds=PlaceHolds()))


def with_pod(test: Callable[[MovingTransport, Pod], Coroutine[Any, Any, None]]) -> None:
    """Runs a test with a pod on node n1 that no controller creates again."""

    async def main() -> None:
        async with api_application() as application:
            transport = MovingTransport(InProcessTransport(application, token=TOKEN))
            spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 0}
            await transport.calls.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default")
            await test(transport, await transport.calls.get(PODS, KEY))

    asyncio.run(main())


@pytest.mark.parametrize("changes", [0, 1])
def test_a_pod_is_evicted_in_the_version_that_was_read(changes: int) -> None:
    async def test(transport: MovingTransport, pod: Pod) -> None:
        transport.changes = changes
        await move(transport, pod)
        assert transport.preconditions[0] == version_of(pod)
        assert len({each["resourceVersion"] for each in transport.preconditions}) == 1 + changes
        assert (await transport.calls.get(PODS, KEY)).spec.node_name == "n2"

    with_pod(test)


@pytest.mark.parametrize("name", ["uid", "node_name"])
def test_a_pod_that_is_not_the_one_of_the_plan_is_left_alone(name: str) -> None:
    async def test(transport: MovingTransport, pod: Pod) -> None:
        planned = {
            "uid": replace(pod, metadata=replace(pod.metadata, uid="another")),
            "node_name": replace(pod, spec=replace(pod.spec, node_name="n3")),
        }
        with pytest.raises(MoveFailed, match="has changed since the plan was made"):
            await move(transport, planned[name])
        assert transport.preconditions == []
        assert await transport.calls.get(PODS, KEY) == pod

    with_pod(test)
