"""What ends a pod does nothing if the pod has changed: a restored backup may have undone the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.pod_disruption import disrupt, patch_status
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.errors import Conflict
from tests.support.api_server import TOKEN, api_application

PODS = resource_for(Pod)
KEY = ObjectKey("default", "p")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDS: dict[str, Callable[[ApiCalls, Pod], Awaitable[object]]] = {
    "disrupt": lambda calls, pod: disrupt(calls, pod, "PreemptionByScheduler", "for another pod", NOW),
    "delete": lambda calls, pod: calls.delete_unchanged(PODS, pod),
    "fail": lambda calls, pod: patch_status(calls, pod, {"phase": "Failed"}),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_pod_that_has_changed_is_left_alone(end: str) -> None:
    async def main() -> None:
        async with api_application() as application:
            calls = ApiCalls(InProcessTransport(application, token=TOKEN))
            document = {
                "metadata": {"name": "p"},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "x"}]},
            }
            known = await calls.create(PODS, document, namespace="default")
            changed = await calls.patch(PODS, KEY, {"metadata": {"labels": {"a": "b"}}})
            with pytest.raises(Conflict):
                await ENDS[end](calls, known)
            assert await calls.get(PODS, KEY) == changed
            await ENDS[end](calls, changed)
            ended = await calls.get(PODS, KEY)
            assert (ended.is_terminating, ended.status.phase) == (
                end != "fail",
                "Failed" if end == "fail" else "Pending",
            )

    asyncio.run(main())
