"""A cluster keeps nothing of objects that are gone: it does not grow with the number of those that it has ever seen."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest

from dralloc.client.known_resources import resource_for
from dralloc.kube.core_v1 import Namespace, Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, DeviceTaintRule, ResourceSlice
from dralloc.kube.scheduling_v1 import PriorityClass
from dralloc.primitives.features import FeatureGates
from dralloc.server.store.interface import HistoryLimits
from dralloc.server.store.memory import MemoryStore
from dralloc.testing.builders import device_class, request, taint, taint_rule
from dralloc.testing.cluster import ClusterSettings, InProcessCluster, cluster_in_process, fleet
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.object_graph import held_by_tasks
from tests.support.scheduled_cluster import gpus, node
from tests.support.workloads import Document, claim_template, job, pod, pod_group, quota, template

GATES: Final = "DRAPreemption=true,GenericWorkload=true"
GPU: Final = "gpu.example.com"
RESOURCE: Final = "example.com/gpu"
# Longer than events are kept.
FORGOTTEN_S: Final = 4_000.0

# What these have is dropped when there is more of it than a constant says.
BOUNDED: Final = frozenset(
    {
        "Aggregator._written",
        "ChangeLog._entries",
        "ClaimLifecycleController._gone",
        "ClaimTemplatesController._reported",
        "DeviceJudge._outcomes",
        "DeviceJudge._reasons",
        "EventLog._events",
        "JsonFrames._made",
        "JsonFrames._pieces",
        "LastChanges._last",
        "OfferJudge._known",
        "Preemptor._reasons",
        "RbacAuthorizer._remembered",
        "SingleRequest._known",
        "SpamFilter._burst_at",
        "_Caches.views",
        "_Channel.events",
    }
)

# One container of each component, so that the test does not pass because it has not looked.
LOOKED_AT: Final = frozenset(
    {
        "ClaimUsers.users",
        "GarbageCollector._due",
        "JobController._trackers",
        "Preemptor._stored",
        "QuotaGuard._namespaces",
        "SchedulingQueue._place",
        "SimulatedRuntime._running",
        "TaintEvictionController._evicted",
    }
)


class Round:
    """Objects of many kinds that come and go, with names that do not come again."""

    def __init__(self, cluster: InProcessCluster, number: int) -> None:
        self._client = cluster.client
        self._number = number
        self._namespace = self._name("round")

    def _name(self, name: str) -> str:
        return f"{name}-{self._number}"

    async def run(self) -> None:
        await self._client.create(named(Namespace, self._namespace))
        whole_cluster, in_namespace = tuple(self._of_cluster()), tuple(self._of_namespace())
        # The first take every device, so that the others evict some of them.
        for objects in (whole_cluster, in_namespace, self._weak_pods(), self._other_pods()):
            for each in objects:
                await self._client.create(each)
            await asyncio.sleep(200)
        phases = Counter(each.status.phase for each in await self._client.list(Pod, namespace=self._namespace))
        assert phases == {"Running": 19, "Pending": 9}
        for kind, name in self._names_of_cluster():
            await self._client.delete(kind, name)
        await self._client.delete(Namespace, self._namespace)
        await asyncio.sleep(FORGOTTEN_S)

    def _of_cluster(self) -> Iterator[Any]:
        for name, value in (("low", 1), ("high", 10)):
            yield {**named(PriorityClass, self._name(name)), "value": value}
        yield device_class(self._name("class"), f'device.driver == "{GPU}"')
        broken = taint("broken", effect="NoExecute")
        yield taint_rule(self._name("rule"), broken, driver=GPU, pool="gpu-0", device="gpu-0")
        yield node(self._name("node"))
        yield gpus(self._name("node"))

    def _names_of_cluster(self) -> Iterator[tuple[type[Any], str]]:
        yield from ((PriorityClass, self._name(name)) for name in ("low", "high"))
        yield DeviceClass, self._name("class")
        yield DeviceTaintRule, self._name("rule")
        yield Node, self._name("node")
        yield ResourceSlice, f"gpus-of-{self._name('node')}"

    def _of_namespace(self) -> Iterator[Document]:
        namespace = self._namespace
        for name, count in (("one", 1), ("nine", 9)):
            yield claim_template(name, request(device_class=GPU, count=count), namespace=namespace)
        yield claim_template("unknown", request(device_class="none.example.com"), namespace=namespace)
        yield quota(
            "quota", {"count/pods": "100", f"{GPU}.deviceclass.resource.k8s.io/devices": "100"}, namespace=namespace
        )
        for name in ("small", "large"):
            group = pod_group(self._name(name), namespace=namespace, min_count=2)
            yield {**group, "spec": {**group["spec"], "priorityClassName": self._name("high")}}

    def _weak_pods(self) -> Iterator[Document]:
        return (self._pod(f"weak-{number}", "one", priority="low") for number in range(15))

    def _other_pods(self) -> Iterator[Document]:
        yield from (self._pod(f"plain-{number}") for number in range(4))
        yield from (self._pod(f"strong-{number}", "one", priority="high") for number in range(3))
        yield from (self._pod(f"extended-{number}", priority="high", requests={RESOURCE: "1"}) for number in range(3))
        yield from (
            self._pod(f"small-{number}", "one", priority="high", group=self._name("small")) for number in range(2)
        )
        yield from (
            self._pod(f"large-{number}", "nine", priority="high", group=self._name("large")) for number in range(2)
        )
        yield self._pod("too-large", requests={"cpu": "1000"})
        yield self._pod("too-many", "nine")
        yield self._pod("of-unknown-class", "unknown")
        yield self._pod("without-template", "missing")
        yield self._pod("on-silent-node", node=self._name("node"))
        gated = self._pod("gated")
        yield {**gated, "spec": {**gated["spec"], "schedulingGates": [{"name": "example.com/gate"}]}}
        yield job(self._name("job"), {"gpu": template("one")}, namespace=self._namespace, completions=2)

    def _pod(self, name: str, *claims: str, priority: str = "", **more: Any) -> Document:
        made = pod(self._name(name), {each: template(each) for each in claims}, namespace=self._namespace, **more)
        if requests := more.get("requests"):
            made["spec"]["containers"][0]["resources"]["limits"] = requests
        if priority:
            made["spec"]["priorityClassName"] = self._name(priority)
        return made


def named(kind: type[ApiObject], name: str) -> Document:
    resource = resource_for(kind)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}


async def moments() -> list[Counter[str]]:
    """What is held at several moments, in some of which requests and timers are under way."""
    held = []
    for _ in range(4):
        await asyncio.sleep(11.3)
        held.append(held_by_tasks(BOUNDED))
    return held


@pytest.mark.slow
def test_nothing_is_kept_of_objects_that_are_gone() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        settings = ClusterSettings(clock=clock, fleets=(fleet("gpu", 2),), gates=FeatureGates.parse(GATES))
        async with (
            MemoryStore(limits=HistoryLimits(events_max=1000)) as store,
            cluster_in_process(settings, store=store) as cluster,
        ):
            await cluster.client.create(device_class("served", f'device.driver == "{GPU}"', extended=RESOURCE))
            for number in range(2):
                await Round(cluster, number).run()
            before = await moments()
            for number in range(2, 5):
                await Round(cluster, number).run()
            after = await moments()
        names = set().union(*after)
        assert names >= LOOKED_AT
        grown = {name: (max(held[name] for held in before), min(held[name] for held in after)) for name in names}
        assert {name: counts for name, counts in grown.items() if counts[1] > counts[0]} == {}

    run_virtual(main())
