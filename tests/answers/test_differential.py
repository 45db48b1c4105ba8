"""What-if answers against what happens: a random cluster, asked before each pod and after the scheduler has settled.

Before a pod is created, `explain` and `allocate` say whether it is placed, where, and with which devices. Then it is created,
the real scheduler and controllers settle it, and the answers must have been true. At the end every pod is explained again,
from the cluster and from a dump of it. On copies of the cluster, remedies, `fit` and `plan` are followed, and what `top` calls
available is claimed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.answers.allocations import allocate_waiting
from dralloc.answers.blockers import Stage
from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.device_report import DeviceReport, DeviceState
from dralloc.answers.dump import KIND, documents, header_of
from dralloc.answers.engine import Engine
from dralloc.answers.fit import fit
from dralloc.answers.live_cluster import read_cluster
from dralloc.answers.manifest_cluster import add_manifests
from dralloc.answers.object_changes import Replacement, apply_changes
from dralloc.answers.placements import PodPlacement, UnplacedPod
from dralloc.answers.planner import CandidateShape, Growths, add_classes, plan_pods
from dralloc.answers.pod_explanation import explain_claim, explain_pod
from dralloc.answers.usage_report import closed_nodes, usage_report
from dralloc.controllers.controller_set import WITHOUT_NODES
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node, ResourceQuota
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.registry import KINDS
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from dralloc.primitives.errors import ApiError
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.server.read.api_resources import key_of
from dralloc.server.read.stored_form import to_stored
from dralloc.server.store.interface import Store
from dralloc.server.store.memory import MemoryStore
from dralloc.testing import builders as build
from dralloc.testing.cluster import ClusterSettings, InProcessCluster, cluster_in_process
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import loop_clock
from tests.support.random_cluster import DRIVER, RandomCluster
from tests.support.workloads import Document, existing
from tests.support.workloads import pod as pod_document

PODS = 8
# An example is a whole cluster: 500 in `make fuzz`.
EXAMPLES = max(1, settings().max_examples // 40)
# Virtual seconds in which everything that can happen has happened.
SETTLED_S = 20.0
COPY_S = 3.0
COPIES_MAX = 8
OPEN_MAX = 3
SHAPE = CandidateShape.parse("gpu=2")

Devices = frozenset[tuple[str, str, str, str, tuple[tuple[str, str], ...]]]


async def read_objects(cluster: InProcessCluster) -> ClusterObjects:
    objects = ClusterObjects(FeatureGates.defaults(), now=loop_clock().now())
    for read in (await read_cluster(cluster.transport, "default")).values():
        for obj in read.objects:
            objects.add(obj)
    return objects


def devices_of(claims: list[ResourceClaim]) -> Devices:
    return frozenset(
        (result.request, result.driver, result.pool, result.device, amounts)
        for claim in claims
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
        for amounts in [tuple(sorted((name, str(amount)) for name, amount in result.consumed_capacity.items()))]
    )


async def create(cluster: InProcessCluster, made: ApiObject | Document) -> str:
    """Creates the object; returns the refusal, if it is refused."""
    try:
        await cluster.client.create(made)
    except ApiError as error:
        return str(error)
    return ""


async def claims_of(cluster: InProcessCluster, pod: Pod) -> list[ResourceClaim]:
    by_entry = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = [entry.resource_claim_name or by_entry.get(entry.name) for entry in pod.spec.resource_claims]
    return [await cluster.client.get(ResourceClaim, name) for name in names if name]


async def ask_and_create(cluster: InProcessCluster, made: Document) -> None:
    """Asks about the pod, creates it, and compares the answers with what happened."""
    objects = await read_objects(cluster)
    new = decode(encode(made), Pod)
    objects.add(new)
    answer = Engine(objects, objects.now).place(new)
    explained = explain_pod(Engine(objects, objects.now), new)
    refusal = await create(cluster, made)
    await asyncio.sleep(SETTLED_S)
    cluster.components.check()
    name = new.metadata.name
    if refusal:
        assert isinstance(answer, UnplacedPod), f"{name}: refused ({refusal}), but placed on {answer.node}"
        assert not explained.is_good, f"{name}: refused ({refusal}), but explained as {explained.verdict}"
        return
    actual = await cluster.client.get(Pod, name)
    told = list(explained.lines())[:3]
    if not actual.spec.node_name:
        assert isinstance(answer, UnplacedPod), f"{name}: pending, but placed on {answer.node}: {_why(actual)}"
        assert not explained.is_good, f"{name}: pending ({_why(actual)}), but explained as {told}"
        return
    assert isinstance(answer, PodPlacement), f"{name}: bound to {actual.spec.node_name}, but {answer}"
    assert explained.is_good, f"{name}: bound to {actual.spec.node_name}, but explained as {told}"
    assert answer.node == actual.spec.node_name
    assert devices_of(list(answer.claims)) == devices_of(await claims_of(cluster, actual))


async def explain_all(cluster: InProcessCluster) -> None:
    """Every settled pod: bound pods are explained as good, all others are not."""
    objects = await read_objects(cluster)
    for pod in objects.all(Pod).values():
        explained = explain_pod(Engine(objects, objects.now), pod)
        told = list(explained.lines())[:3]
        assert explained.is_good == bool(pod.spec.node_name), f"{pod.metadata.name} ({_why(pod)}): {told}"


def _why(pod: Pod) -> list[tuple[str, str]]:
    return [(condition.reason, condition.message) for condition in pod.status.conditions if condition.status != "True"]


# --- Dumps ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DumpedObject:
    file: str
    api_version: str
    kind: str
    body: bytes


def dumped(objects: ClusterObjects) -> ClusterObjects:
    """The objects after a dump was written and read."""
    again = ClusterObjects(objects.gates, now=objects.now)
    bodies = [(body, msgspec.json.decode(body)) for body in documents(header_of(objects, {}, dralloc="1"), objects)]
    written = (DumpedObject("dump", each["apiVersion"], each["kind"], body) for body, each in bodies)
    add_manifests(again, (each for each in written if each.kind != KIND))
    return again


def all_answers(objects: ClusterObjects) -> bytes:
    """Everything that commands say about the cluster."""
    pods = [explain_pod(Engine(objects, objects.now), each) for each in objects.all(Pod).values()]
    claims = [explain_claim(Engine(objects, objects.now), each) for each in objects.all(ResourceClaim).values()]
    allocations = allocate_waiting(Engine(objects, objects.now), None)
    usage = usage_report(objects.snapshot(), objects.features)
    said = [(list(each.lines()), each.values()) for each in (*pods, *claims)]
    return msgspec.json.encode((said, repr(allocations), [repr(each) for each in usage]))


# --- On copies of the cluster ---------------------------------------------------------------------------------------------


def kind_of(obj: ApiObject) -> Kind:
    return next(kind for kind in KINDS if kind.kind == type(obj).__name__)


@asynccontextmanager
async def copied(
    store: Store, replacements: Iterable[Replacement] = (), gates: FeatureGates | None = None
) -> AsyncIterator[InProcessCluster]:
    """Inside the block, another cluster that starts with the objects of the store, some of them replaced."""
    async with MemoryStore() as copy:
        for record in (await store.list_prefix("")).records:
            await copy.create(record.key, record.value)
        for old, new in replacements:
            some = old or new
            assert some is not None
            key = key_of(kind_of(some), some.metadata.namespace, some.metadata.name)
            if (known := await copy.get(key)) is not None:
                await copy.delete(key, expected_revision=known.revision)
            if new is not None:
                await copy.create(key, to_stored(new))
        settings = ClusterSettings(
            clock=loop_clock(), gates=gates or FeatureGates.defaults(), controllers=WITHOUT_NODES
        )
        async with cluster_in_process(settings, store=copy) as cluster:
            await asyncio.sleep(SETTLED_S)
            cluster.components.check()
            yield cluster


def waiting_pods(objects: ClusterObjects) -> list[Pod]:
    return [pod for pod in objects.all(Pod).values() if not pod.spec.node_name]


async def follow_remedies(store: Store, objects: ClusterObjects) -> None:
    """Follows every remedy for a waiting pod on a copy without the other waiting pods, which could get the devices."""
    waiting = waiting_pods(objects)
    for pod in waiting:
        explained = explain_pod(Engine(objects, objects.now), pod)
        if explained.explanation is None or {each.stage for each in explained.blockers} != {Stage.SCHEDULING}:
            continue
        others: list[Replacement] = [(other, None) for other in waiting if other is not pod]
        for remedy in explained.explanation.remedies:
            changed, replacements = apply_changes(objects, remedy.change.objects)
            async with copied(store, (*others, *replacements), changed.gates) as cluster:
                actual = await cluster.client.get(Pod, pod.metadata.name)
                text = f"{pod.metadata.name}: {remedy.change.text}"
                assert actual.spec.node_name, f"{text}: no help: {_why(actual)}"
                assert actual.spec.node_name == remedy.node, text


async def follow_fit(store: Store, made: Document) -> None:
    """Creates as many copies of a pod as fit, and one more."""
    async with copied(store) as cluster:
        objects = await read_objects(cluster)
        found = fit(Engine(objects, objects.now), decode(encode(made), Pod), COPIES_MAX)
        names = [f"{made['metadata']['name']}-{number}" for number in range(1, found.count + 2)]
        for name in names[:COPIES_MAX]:
            await create(cluster, {**made, "metadata": {**made["metadata"], "name": name}})
            await asyncio.sleep(COPY_S)
        pods = {pod.metadata.name: pod for pod in (await read_objects(cluster)).all(Pod).values()}
        placed = Counter(pods[name].spec.node_name for name in names if name in pods and pods[name].spec.node_name)
        expected = {node: count for node, count in found.by_node.items() if count}
        assert placed == expected, f"fit: {found.message}: {made}"


async def follow_plan(
    store: Store, waiting: Iterable[Pod], made: list[Document], shape: CandidateShape = SHAPE
) -> None:
    """Creates the pods one after the other, and each new node when the plan needs it; waiting pods would take it first."""
    async with copied(store, [(pod, None) for pod in waiting]) as cluster:
        objects = await read_objects(cluster)
        classes = set(objects.all(DeviceClass))
        add_classes(objects, [shape])
        for key, device_class in objects.all(DeviceClass).items():
            if key not in classes:
                assert not await create(cluster, device_class)
        pods = [decode(encode(each), Pod) for each in made]
        for pod in pods:
            objects.add(pod)
        engine = Engine(objects, objects.now, nodes=objects.all(Node).values())
        plan = plan_pods(engine, pods, shape, objects.now)
        expected = {placement.pod.metadata.name: placement for placement in plan.placements}
        grow, missing = Growths(shape, objects.now), list(plan.nodes)
        for each in made:
            name = each["metadata"]["name"]
            placement = expected.get(name)
            while placement is not None and placement.node in missing:
                growth = grow((len(plan.nodes) - len(missing)) // shape.unit)
                del missing[: len(growth.nodes)]
                for obj in (*growth.nodes, *growth.slices):
                    assert not (refusal := await create(cluster, obj)), refusal
                await asyncio.sleep(COPY_S)
            refusal = await create(cluster, each)
            await asyncio.sleep(COPY_S)
            if refusal:
                assert placement is None, f"plan: {name} is refused: {refusal}"
                continue
            actual = await cluster.client.get(Pod, name)
            planned = placement.node if placement is not None else ""
            happened = actual.spec.node_name or ""
            assert happened == planned, f"plan: {name}: on '{happened}' instead of '{planned}' {_why(actual)}"
            if placement is not None:
                assert devices_of(list(placement.claims)) == devices_of(await claims_of(cluster, actual)), name


def roomy(node: Node) -> Node:
    """The node with room for many pods."""
    return replace(node, status=replace(node.status, allocatable=dict.fromkeys(("cpu", "pods"), Quantity.parse("500"))))


def claim_for(device: DeviceReport, name: str, capacity: dict[str, str] | None) -> list[Document | ResourceClaim]:
    """A claim for this device, and a pod that uses it."""
    number = device.device.attributes["id"].int
    where = f'device.attributes["{DRIVER}"].id == {number}'
    wanted = build.request("device", device_class="gpu", where=where, capacity=capacity)
    return [build.claim(name, wanted), pod_document(name, {"claim": existing(name)})]


async def claim_what_top_shows(store: Store, objects: ClusterObjects) -> None:
    """Claims all that a device has available, after one unit more was refused; devices that are not open are refused."""
    gone: list[Replacement] = [(each, None) for each in (*waiting_pods(objects), *objects.all(ResourceQuota).values())]
    nodes: list[Replacement] = [(node, roomy(node)) for node in objects.all(Node).values()]
    reports = usage_report(objects.snapshot(), objects.features, closed_nodes(objects.nodes))
    devices = [device for report in reports for device in report.devices if device.state is not DeviceState.GONE]
    for open_device in [None, *(device for device in devices if device.state.is_open)][:OPEN_MAX]:
        async with copied(store, (*gone, *nodes)) as cluster:
            asked = [open_device] if open_device is not None else [each for each in devices if not each.state.is_open]
            for device in asked:
                (memory,) = device.capacities
                name = f"top-{device.device_id.pool}-{device.device_id.device}"
                most = None
                if memory.largest is not None:
                    more = str(Quantity.parse(str(memory.largest.nanos // 10**9 + 1)))
                    most = {"memory": str(memory.largest)}
                    await claim_and_check(cluster, device, f"{name}-more", {"memory": more}, is_given=False)
                await claim_and_check(cluster, device, name, most, is_given=device.state.is_open)


async def claim_and_check(
    cluster: InProcessCluster, device: DeviceReport, name: str, capacity: dict[str, str] | None, *, is_given: bool
) -> None:
    for each in claim_for(device, name, capacity):
        assert not (refusal := await create(cluster, each)), refusal
    await asyncio.sleep(COPY_S)
    actual = await cluster.client.get(Pod, name)
    said = f"top: {name} {capacity}: {device.state} {device.capacities} {device.block} {_why(actual)}"
    assert bool(actual.spec.node_name) == is_given, said


# --- Scenarios ------------------------------------------------------------------------------------------------------------


async def change(cluster: InProcessCluster, random: RandomCluster) -> None:
    """Sometimes deletes a pod, and changes which devices are shareable."""
    pods = await cluster.client.list(Pod, namespace="default")
    for name in random.deleted([pod.metadata.name for pod in pods]):
        await cluster.client.delete(Pod, name)
    for resource_slice in await cluster.client.list(ResourceSlice):
        if resource_slice.spec.devices and (new := random.republished(resource_slice)) != resource_slice:
            await cluster.client.replace(new)
    await asyncio.sleep(SETTLED_S)


async def scenario(seed: int) -> None:
    random = RandomCluster(seed)
    async with MemoryStore() as store:
        async with cluster_in_process(
            ClusterSettings(clock=loop_clock(), controllers=WITHOUT_NODES), store=store
        ) as cluster:
            for made in random.objects():
                await create(cluster, made)
            await asyncio.sleep(SETTLED_S)
            for index in range(PODS):
                await ask_and_create(cluster, random.pod(index))
                await change(cluster, random)
            await explain_all(cluster)
            objects = await read_objects(cluster)
        assert all_answers(objects) == all_answers(dumped(objects))
        await follow_remedies(store, objects)
        await claim_what_top_shows(store, objects)
        await follow_fit(store, random.pod(PODS))
        await follow_plan(store, waiting_pods(objects), [random.pod(PODS + 1 + index) for index in range(4)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_answers_are_what_happens(seed: int) -> None:
    run_virtual(scenario(seed))


@pytest.mark.slow
@pytest.mark.fuzz
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(min_value=100, max_value=10**6))
def test_answers_are_what_happens_on_random_clusters(seed: int) -> None:
    run_virtual(scenario(seed))
