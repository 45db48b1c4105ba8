"""A cluster with one node agent and nothing else, in real time. The test plays the scheduler.

Server, sockets, files and processes are real. The agent polls more often than a kubelet and has the same timeouts, so that a busy
machine does not look like a hanging driver.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from dralloc.client.known_resources import resource_for
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.client.work_queue import Backoff
from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import AllocationResult, ResourceClaim
from dralloc.node.agent import Agent, AgentSettings
from dralloc.node.node_object import NodeShape
from dralloc.node.pod_view import NODE_PODS, NodePod
from dralloc.node.timings import Timings
from dralloc.primitives.errors import NotFound
from dralloc.server.access.users import AUTHENTICATED, NODES, User
from dralloc.testing.builders import CLASS, NODE, allocation, claim, device_class, held, request
from tests.support.cluster import DEADLINE_S, TestCluster, cluster_on
from tests.support.workloads import existing
from tests.support.workloads import pod as pod_document

SOON: Final = Backoff(first_s=0.02, most_s=0.1)
QUICK: Final = Timings(
    poll_s=0.02,
    get_info_s=30.0,
    notify_s=30.0,
    register_backoff=SOON,
    slice_cleanup_delay_s=0.1,
    slice_cleanup_backoff=SOON,
    health_reopen_s=0.05,
    reconcile_s=0.2,
    pod_backoff=SOON,
    crash_first_s=0.05,
    crash_most_s=0.2,
    heartbeat_s=1.0,
)
LOOK_S: Final = 0.01


@contextmanager
def short_directory() -> Iterator[Path]:
    """A directory with a short path: the name of a socket has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="dra-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class NodeCluster(TestCluster):
    """A cluster whose only component is the agent of one node."""

    def __init__(self, transport: Transport, *, settings: AgentSettings) -> None:
        super().__init__(transport)
        self.settings = settings
        self.agent: Agent | None = None

    @property
    def directory(self) -> Path:
        return self.settings.directory

    async def start_agent(self) -> Agent:
        ready = asyncio.Event()
        self.agent = Agent(self.network, self.settings, self.clock)
        self.components.start("agent", partial(self.agent.run, ready.set))
        await self.components.guard(ready.wait())
        return self.agent

    async def stop_agent(self) -> None:
        await self.components.end("agent")

    # --- What a user and a scheduler do ---------------------------------------------------------------------------

    async def create_claim(
        self, name: str = "claim", result: AllocationResult | None = None, **spec: Any
    ) -> ResourceClaim:
        """Create an allocated claim; default: the device of the builders."""
        made = claim(name, request("request"), **spec)
        await self.client.create(replace_uid(made))
        return await self.allocate(name, result or allocation(held("gpu-0")))

    async def allocate(self, name: str, result: AllocationResult | None) -> ResourceClaim:
        status: dict[str, Any] = {"allocation": result, "reservedFor": []}
        return await self.client.patch(ResourceClaim, name, {"status": status}, subresource="status")

    async def run_pod(self, name: str = "pod", *claims: str, **changes: Any) -> Pod:
        """Create a pod that uses these claims, reserve them for it, and bind it to the node."""
        pod = await self.create_pod(name, *claims, **changes)
        for each in claims:
            await self.reserve(each, pod)
        await self.bind(name)
        return pod

    async def create_pod(self, name: str, *claims: str, **changes: Any) -> Pod:
        """`annotations` are the pod's, `spec` members go to its spec, the rest to its one container."""
        document = pod_document(name, {each: existing(each) for each in claims})
        document["metadata"]["annotations"] = changes.pop("annotations", {})
        document["spec"] |= changes.pop("spec", {})
        document["spec"]["containers"][0] |= changes
        created: Pod = await self.client.create(document)
        return created

    async def start_deletion(self, pod: str, grace_s: int | None = None) -> None:
        """Delete the pod without waiting until it is gone."""
        await self.client.calls.delete(resource_for(Pod), ObjectKey("default", pod), grace_period_s=grace_s)

    # --- What a test waits for ------------------------------------------------------------------------------------

    async def pod_where(
        self, name: str, condition: Callable[[NodePod], bool], timeout_s: float = DEADLINE_S
    ) -> NodePod:
        """The pod as soon as the condition is true."""
        calls, selector = self.client.calls, f"metadata.name={name}"
        try:
            async with asyncio.timeout(timeout_s):
                pods, revision = await calls.list_all(NODE_PODS, field_selector=selector)
                for pod in pods:
                    if condition(pod):
                        return pod
                async for event in calls.watch(
                    NODE_PODS, resource_version=revision, timeout_s=120, field_selector=selector
                ):
                    if event.type != "BOOKMARK" and condition(event.object):
                        return event.object
        except TimeoutError:
            raise AssertionError(f"not so within {timeout_s} s: {await self.describe(name)}") from None
        raise AssertionError("the server ended the watch")

    async def pod_in(self, phase: str, name: str = "pod") -> NodePod:
        return await self.pod_where(name, lambda pod: pod.status.phase == phase)

    async def eventually(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(LOOK_S)

    async def event_where(self, condition: Callable[[Event], bool]) -> Event:
        async with asyncio.timeout(DEADLINE_S):
            async for change in self.client.watch(Event):
                if condition(change.object):
                    return change.object
        raise AssertionError("the server ended the watch")

    async def describe(self, name: str) -> str:
        try:
            pod = await self.client.calls.get(NODE_PODS, ObjectKey("default", name))
        except NotFound:
            return f"there is no pod {name}"
        events = [event.message for event in await self.client.list(Event)]
        return f"{pod.status}, events {events}"


def replace_uid(made: ResourceClaim) -> ResourceClaim:
    """The claim without the UID of the builders: the server assigns one."""
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=""))


@asynccontextmanager
async def node_cluster(
    directory: Path, *, timings: Timings = QUICK, starts_agent: bool = True, **settings: Any
) -> AsyncIterator[NodeCluster]:
    """A cluster with one device class and one node whose agent runs inside the block."""
    defaults = AgentSettings(
        shape=NodeShape(name=NODE, capacity={"cpu": "8", "memory": "32Gi", "pods": "110"}),
        directory=directory,
        cdi_directories=(directory / "cdi",),
        timings=timings,
    )
    node = User(name=f"system:node:{NODE}", groups=(NODES, AUTHENTICATED))
    kind = partial(NodeCluster, settings=replace(defaults, **settings))
    async with cluster_on(kind, components=node, enforces_roles=True) as cluster:
        await cluster.create(device_class(CLASS))
        if starts_agent:
            await cluster.start_agent()
        yield cluster
