"""What-if answers follow the strategy of the scheduler: what is said before a pod comes is what the scheduler then does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
import pytest

from dralloc.answers.anonymizer import Anonymizer
from dralloc.answers.assumed_scheduler import scheduler_of, typical_pods_of
from dralloc.answers.cluster_objects import ClusterObjects, StatedScheduler
from dralloc.answers.dump import KIND, documents, header_of
from dralloc.answers.engine import Engine
from dralloc.answers.live_cluster import read_cluster
from dralloc.answers.manifest_cluster import add_manifests
from dralloc.answers.placements import PodPlacement
from dralloc.cli.scheduler_configuration import read_configuration
from dralloc.controllers.controller_set import WITHOUT_NODES
from dralloc.kube import device_parts as parts
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import ConfigMap, Event
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.configuration import SchedulerConfiguration
from dralloc.scheduler.decide.strategies import FRAGMENTATION_AWARE, PACK, STRATEGIES
from dralloc.scheduler.decide.strategy_choice import ANNOTATION, LEARNT_FIRST, StrategySettings
from dralloc.scheduler.decide.typical_pods import COUNT_ANNOTATION
from dralloc.scheduler.decide.typical_use import TypicalUse
from dralloc.scheduler.published_configuration import CONFIGURATION, TYPICAL_PODS, key_of, published_data
from dralloc.scheduler.settings import NAME, ONLY_SCHEDULER_NAMES
from dralloc.scheduler.state.class_settings import ClassSettings
from dralloc.testing import builders as build
from dralloc.testing.cluster import ClusterSettings, InProcessCluster, cluster_in_process
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import loop_clock
from tests.support.workloads import Document, existing
from tests.support.workloads import pod as pod_document

PODS = LEARNT_FIRST + 6
SETTLED_S = 3.0
# Cores and devices of the nodes.
SIZES = {"a": (32, 4), "b": (24, 2), "c": (40, 3), "d": (64, 0)}


def cluster_objects() -> Iterator[ApiObject | Document]:
    yield build.device_class()
    memory = parts.capacity("40", default="40", minimum="1", step="1")
    for name, (cores, devices) in SIZES.items():
        amounts = {"cpu": str(cores), "memory": "64Gi", "pods": "100"}
        status = {"allocatable": amounts, "capacity": amounts}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        if devices:
            listed = [build.device(f"gpu-{i}", capacity={"memory": memory}, shareable=True) for i in range(devices)]
            yield build.resource_slice(name, *listed, pool=name, node_name=name)


def random_pod(chance: Random, number: int) -> tuple[ApiObject, Document]:
    """A claim and the pod that uses it; some pods ask for a strategy of their own."""
    name = f"pod-{number}"
    wanted = build.request(capacity={"memory": chance.choice(["10", "16", "25", "40"])})
    made = pod_document(name, {"gpu": existing(name)}, requests={"cpu": str(chance.randint(1, 4)), "memory": "1Gi"})
    if chance.random() < 0.3:
        made["metadata"]["annotations"] = {ANNOTATION: chance.choice(list(STRATEGIES))}
    return build.claim(name, wanted), made


async def read_objects(cluster: InProcessCluster) -> ClusterObjects:
    objects = ClusterObjects(FeatureGates.defaults(), now=loop_clock().now())
    for read in (await read_cluster(cluster.transport, "default")).values():
        objects.add_read(read)
    return objects


@dataclass(frozen=True, slots=True)
class _Written:
    file: str
    api_version: str
    kind: str
    body: bytes


def reread(objects: ClusterObjects, bodies: list[bytes]) -> ClusterObjects:
    """The objects of a dump."""
    again = ClusterObjects(objects.gates, now=objects.now)
    trees = [(body, msgspec.json.decode(body)) for body in bodies]
    written = [_Written("dump", tree["apiVersion"], tree["kind"], body) for body, tree in trees]
    add_manifests(again, (each for each in written if each.kind != KIND))
    return again


def places(objects: ClusterObjects, name: str, namespace: str = "default") -> str:
    answer = Engine(objects, objects.now).place(objects.all(Pod)[namespace, name])
    return answer.node if isinstance(answer, PodPlacement) else ""


async def follow(cluster: InProcessCluster, seed: int) -> None:
    chance = Random(seed)
    for made in cluster_objects():
        await cluster.client.create(made)
    for number in range(PODS):
        claim, made = random_pod(chance, number)
        await cluster.client.create(claim)
        await asyncio.sleep(SETTLED_S)
        objects = await read_objects(cluster)
        objects.add(decode(encode(made), Pod))
        assert not objects.notes
        name = made["metadata"]["name"]
        told = places(objects, name)
        bodies = list(documents(header_of(objects, {}, dralloc="1"), objects))
        assert places(reread(objects, bodies), name) == told
        if number in (0, PODS - 1):
            renamed = Anonymizer(bodies)
            hidden = reread(objects, list(renamed.documents()))
            there = places(hidden, renamed.renamed(name), renamed.renamed("default"))
            assert there == (renamed.renamed(told) if told else "")
        await cluster.client.create(made)
        await asyncio.sleep(SETTLED_S)
        cluster.components.check()
        assert ((await cluster.client.get(Pod, name)).spec.node_name or "") == told, name


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_said_is_what_the_scheduler_does(strategy: str) -> None:
    async def run() -> None:
        strategies = StrategySettings(default=STRATEGIES[strategy], allowed={"Pack": PACK})
        settings = ClusterSettings(clock=loop_clock(), controllers=WITHOUT_NODES, strategies=strategies)
        async with cluster_in_process(settings) as cluster:
            await follow(cluster, 1)
            published = await cluster.client.get(ConfigMap, key_of(NAME).name, namespace=key_of(NAME).namespace)
            assert f'"strategy":"{strategy}"' in published.data[CONFIGURATION] or strategy == "Spread"
            events = await cluster.client.list(Event, namespace="default")
            told = {each.involved_object.name for each in events if each.reason == "StrategyNotAllowed"}
            pods = await cluster.client.list(Pod, namespace="default")
            asked = {each.metadata.name: each.metadata.annotations.get(ANNOTATION, "Pack") for each in pods}
            placed = {each.metadata.name for each in pods if each.spec.node_name}
            assert told == {name for name in placed if asked[name] not in ("Pack", strategy)}
            assert told or len(placed) < PODS
            learns = strategy == FRAGMENTATION_AWARE.name
            assert ('"kind":"Pod"' in published.data.get(TYPICAL_PODS, "")) == learns

    run_virtual(run())


# --- The configuration as a document --------------------------------------------------------------------------------------


def some_objects() -> ClusterObjects:
    objects = ClusterObjects(FeatureGates.defaults())
    chance = Random(4)
    for made in cluster_objects():
        if isinstance(made, ApiObject):
            objects.add(made)
    for number in range(30):
        claim, made = random_pod(chance, number)
        objects.add(msgspec.structs.replace(claim, metadata=ObjectMeta(name=f"pod-{number}", namespace="default")))
        objects.add(decode(encode(made), Pod))
    return objects


def shapes(configuration: SchedulerConfiguration) -> set[tuple[object, ...]]:
    found = TypicalUse(configuration.strategies.typical or ()).shapes
    return {(each.needs, tuple(sorted(each.resources.items())), each.weight) for each in found}


def test_typical_pods_are_the_same_after_they_were_published() -> None:
    objects = some_objects()
    objects.stated = StatedScheduler(strategy=FRAGMENTATION_AWARE)
    assumed = scheduler_of(objects, ONLY_SCHEDULER_NAMES)
    assert assumed.strategies.typical
    stated = SchedulerConfiguration({"gpu": ClassSettings(strategies={"memory": "BlockOrShare"})}, assumed.strategies)
    objects.stated = StatedScheduler()
    objects.add(ConfigMap(metadata=ObjectMeta(name="any"), data=published_data(NAME, stated, FeatureGates.defaults())))
    again = scheduler_of(objects, ONLY_SCHEDULER_NAMES)
    assert again.class_settings == stated.class_settings
    assert again.strategies.default is FRAGMENTATION_AWARE
    assert shapes(again) == shapes(assumed)
    assert scheduler_of(objects, {"another"}).strategies.default.name == "Spread"


def test_what_a_user_states_counts() -> None:
    objects = some_objects()
    published = SchedulerConfiguration({}, StrategySettings(default=PACK, allowed={"Spread": STRATEGIES["Spread"]}))
    objects.add(
        ConfigMap(metadata=ObjectMeta(name="any"), data=published_data("dralloc", published, FeatureGates.defaults()))
    )
    assert scheduler_of(objects, ONLY_SCHEDULER_NAMES).strategies == published.strategies
    objects.stated = StatedScheduler(strategy=STRATEGIES["Spread"])
    stated = scheduler_of(objects, ONLY_SCHEDULER_NAMES).strategies
    assert (stated.default.name, list(stated.allowed)) == ("Spread", ["Spread"])
    objects.stated = StatedScheduler(SchedulerConfiguration())
    assert not scheduler_of(objects, ONLY_SCHEDULER_NAMES).strategies.allowed


VALID = '{"apiVersion": "scheduler.dralloc.io/v1alpha1", "kind": "SchedulerConfiguration"}'


@pytest.mark.parametrize(
    ("configuration", "typical", "why"),
    [
        ('{"apiVersion": "scheduler.dralloc.io/v9", "kind": "Other"}', "{}", "expected apiVersion"),
        ("[" * 100_000, "{}", "nested too deeply"),
        (VALID, '{"items": [{"a": ' + "[" * 100_000, "nested too deeply"),
        (VALID, '{"items": 5}', "Expected"),
        (VALID, '{"items": [5]}', "Expected"),
        (VALID, '{"items": null}', "Expected"),
        (VALID, '{"items": [{"apiVersion": "v1", "kind": "Pod"}]}', "typical-pods.json: Pod without metadata.name"),
    ],
    ids=["other version", "deep", "deep pods", "a number", "numbers", "null", "no name"],
)
def test_a_configuration_that_cannot_be_read_is_noted(configuration: str, typical: str, why: str) -> None:
    objects = some_objects()
    data = {"schedulerName": "dralloc", CONFIGURATION: configuration, TYPICAL_PODS: typical}
    objects.add(ConfigMap(metadata=ObjectMeta(name="any"), data=data))
    assert scheduler_of(objects, ONLY_SCHEDULER_NAMES).strategies.default.name == "Spread"
    [note] = objects.notes
    assert note.startswith(f"the configuration of scheduler dralloc cannot be read: {why}")


def annotated(objects: ClusterObjects, count: str) -> ClusterObjects:
    for pod in tuple(objects.all(Pod).values())[::2]:
        metadata = msgspec.structs.replace(pod.metadata, annotations={COUNT_ANNOTATION: count})
        objects.add(msgspec.structs.replace(pod, metadata=metadata))
    return objects


@pytest.mark.parametrize("count", ["0", "9" * 5000], ids=["0", "999…"])
def test_a_typical_pod_occurs_at_least_once_whatever_its_annotation_says(count: str) -> None:
    """Of manifests that were made for this: pods of the cluster are counted without their annotations."""
    plain, counted = some_objects(), annotated(some_objects(), count)
    assert typical_pods_of(counted, are_counted=True).total == typical_pods_of(plain).total
    assert typical_pods_of(annotated(some_objects(), "7")).total == typical_pods_of(plain).total
    assert typical_pods_of(annotated(some_objects(), "7"), are_counted=True).total > typical_pods_of(plain).total


def test_what_is_published_can_be_used_as_a_file(tmp_path: Path) -> None:
    objects = some_objects()
    objects.stated = StatedScheduler(strategy=FRAGMENTATION_AWARE)
    data = published_data("dralloc", scheduler_of(objects, ONLY_SCHEDULER_NAMES), FeatureGates.defaults())
    for key in (CONFIGURATION, TYPICAL_PODS):
        (tmp_path / key).write_text(data[key])
    # A file has the classes, too.
    listed = msgspec.json.decode(data[TYPICAL_PODS])
    made = msgspec.structs.replace(build.device_class(), api_version="resource.k8s.io/v1", kind="DeviceClass")
    listed["items"].append(msgspec.json.decode(encode(made)))
    (tmp_path / TYPICAL_PODS).write_bytes(msgspec.json.encode(listed))
    read = read_configuration(tmp_path / CONFIGURATION, FeatureGates.defaults())
    assert read.strategies.default is FRAGMENTATION_AWARE
    assert read.strategies.typical
