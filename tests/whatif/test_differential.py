"""What-if answers against what happens: a random cluster, asked before each pod and after the scheduler has settled.

Before a pod is created, `explain` and `allocate` say whether it is placed, where, and with which devices. Then it is created,
the real scheduler and controllers settle it, and the answers must have been true. At the end every pod is explained again.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dralloc.api.codec import decode, encode
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.assembly.cluster import ClusterSettings, InProcessCluster, cluster_in_process
from dralloc.primitives.errors import ApiError
from dralloc.primitives.features import FeatureGates
from dralloc.simulator.virtual_time import run_virtual
from dralloc.whatif.cluster_objects import ClusterObjects
from dralloc.whatif.engine import Engine, PodPlacement, UnplacedPod
from dralloc.whatif.live_cluster import read_cluster
from dralloc.whatif.pod_explanation import explain_pod
from tests.support.api_server import loop_clock
from tests.support.random_cluster import RandomCluster
from tests.support.workloads import Document

PODS = 8
# An example is a whole cluster: 500 in `make fuzz`.
EXAMPLES = max(1, settings().max_examples // 40)
# Virtual seconds in which everything that can happen has happened.
SETTLED_S = 20.0

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


async def scenario(seed: int) -> None:
    random = RandomCluster(seed)
    async with cluster_in_process(ClusterSettings(clock=loop_clock())) as cluster:
        for made in random.objects():
            await create(cluster, made)
        await asyncio.sleep(SETTLED_S)
        for index in range(PODS):
            await ask_and_create(cluster, random.pod(index))
        await explain_all(cluster)


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
