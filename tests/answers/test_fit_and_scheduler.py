"""What `fit` counts is what a running scheduler does: so many copies get a node, on the nodes that were named, and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.fit import FitReport, fit
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import (
    Device,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourceSlice,
)
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.settings import NAME, SchedulerSettings
from dralloc.testing.builders import (
    alternative,
    claim,
    device,
    device_class,
    first_available,
    match,
    request,
    resource_slice,
    taint,
    taint_rule,
)
from dralloc.testing.virtual_time import run_virtual
from tests.support.scheduled_cluster import ScheduledCluster, node, our_pod, scheduled_cluster
from tests.support.workloads import Document, pod, template

SEEDS = 15
# Copies that are created beyond those that fit.
MORE = 3


class RandomCluster:
    """Nodes with devices of their own, devices that all nodes reach, pods that run and wait, and claims to copy."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._pick = self._random.choice
        self.cpu = self._pick(("1", "1", "2"))

    def objects(self) -> Iterator[Any]:
        yield device_class()
        for number in range(self._random.randint(1, 4)):
            name = f"n{number}"
            amounts = {"cpu": self._pick("2468"), "pods": self._pick(("3", "110"))}
            yield node(name, **amounts, unschedulable=self._random.random() < 0.1)  # type: ignore[arg-type]
            yield from self._pool(name, node_name=name)
        if self._random.random() < 0.4:
            yield from self._pool("shared", node_name=None, all_nodes=True)
        if self._random.random() < 0.3:
            yield taint_rule("rule", taint("broken"), pool=self._pick(("n0", "n1")), device=self._pick(("d0", None)))

    def _pool(self, name: str, **place: Any) -> Iterator[ResourceSlice]:
        is_drawing = self._random.random() < 0.3
        devices = [self._device(f"d{number}", is_drawing) for number in range(self._random.randint(1, 5))]
        # An announced slice that does not exist makes the pool incomplete.
        announced = 1 + is_drawing + (self._random.random() < 0.1)
        yield resource_slice(f"{name}-devices", *devices, pool=name, of=announced, **place)
        if is_drawing:
            amounts = {"card": {"memory": str(self._random.randint(4, 9))}}
            yield resource_slice(f"{name}-counters", pool=name, of=announced, counters=amounts, **place)

    def _device(self, name: str, is_drawing: bool) -> Device:
        is_shareable = self._random.random() < 0.5
        return device(
            name,
            attributes={"numa": self._pick((0, 1)), "model": self._pick(("a", "b"))},
            capacity={"memory": str(self._random.randint(2, 9))},
            shareable=is_shareable or None,
            draws={"card": {"memory": self._pick("123")}} if is_drawing else None,
            taints=[taint("broken")] if self._random.random() < 0.1 else (),
        )

    def wanted(self) -> ResourceClaim:
        capacity = {"memory": self._pick("123")} if self._random.random() < 0.5 else None
        match self._random.randrange(4):
            case 0:
                both = [request("a", capacity=capacity), request("b")]
                return claim("wanted", *both, constraints=[match("gpu.example.com/numa")])
            case 1:
                ways = [alternative("two", count=2), alternative("one", capacity=capacity)]
                return claim("wanted", first_available("any", *ways))
            case 2:
                return claim("wanted", request(count=2, capacity=capacity))
            case _:
                return claim("wanted", request(capacity=capacity))

    def pods(self, at_least: int = 0) -> Iterator[tuple[ResourceClaim, Document]]:
        for number in range(self._random.randint(at_least, 6)):
            name = f"before-{number}"
            own = self.wanted()
            yield named(own, name), our_pod(name, name, requests={"cpu": self._pick("123")})


def named(item: ResourceClaim, name: str) -> ResourceClaim:
    return replace(item, metadata=replace(item.metadata, name=name))


async def objects_of(cluster: ScheduledCluster) -> ClusterObjects:
    objects = ClusterObjects(FeatureGates.defaults())
    for kind in (Node, Pod, ResourceSlice, DeviceClass, ResourceClaim, DeviceTaintRule):
        for obj in await cluster.client.list(kind):
            objects.add(obj)
    return objects


def count_copies(objects: ClusterObjects, own: ResourceClaim, cpu: str) -> FitReport:
    spec = ResourceClaimTemplateSpec(spec=own.spec)
    made: ApiObject = ResourceClaimTemplate(metadata=ObjectMeta(name="wanted", namespace="default"), spec=spec)
    objects.add(made)
    document = pod("copy", {"wanted": template("wanted")}, requests={"cpu": cpu}, scheduler=NAME)
    return fit(Engine(objects, objects.now), decode(encode(document), Pod))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_scheduler_places_as_many_copies(seed: int) -> None:
    async def main() -> None:
        async with scheduled_cluster(schedulers=0) as cluster:
            cluster.start(SchedulerSettings())
            random = RandomCluster(seed)
            await cluster.create(*random.objects())
            for own, document in random.pods():
                await cluster.create(own, document)
            await cluster.settle(15)
            wanted = random.wanted()
            report = count_copies(await objects_of(cluster), wanted, random.cpu)
            assert not report.is_limited
            for number in range(report.count + MORE):
                name = f"copy-{number:03}"
                await cluster.create(named(wanted, name), our_pod(name, name, requests={"cpu": random.cpu}))
                await cluster.settle()
            nodes = [each.spec.node_name for each in await cluster.client.list(Pod) if "copy-" in each.metadata.name]
            assert Counter(filter(None, nodes)) == {name: count for name, count in report.by_node.items() if count}

    run_virtual(main())
