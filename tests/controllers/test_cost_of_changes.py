"""Pods that share a claim end one after the other: each costs server and controllers as much as any other, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.controllers.claim_creation import users_of
from dralloc.controllers.shared_informers import SharedInformers
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Namespace
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference
from dralloc.testing.builders import allocation, claim, held, request
from dralloc.testing.virtual_time import run_virtual
from tests.support.call_counts import LINEAR_MAX, counted_calls
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.workloads import existing, job, pod, seen

NAMESPACE = "work"
SMALL = 60

Scenario = Callable[[ControlledCluster, list[str]], Awaitable[None]]


async def end(cluster: ControlledCluster, names: list[str]) -> None:
    """End the pods, which are being deleted, as their node does."""
    await asyncio.sleep(1)
    for name in names:
        await cluster.remove_pod(name, NAMESPACE)
        await asyncio.sleep(0.1)
    assert await cluster.client.list(Pod, namespace=NAMESPACE) == ()


async def delete_owner_last(cluster: ControlledCluster, names: list[str]) -> None:
    await cluster.client.delete(Job, "training", namespace=NAMESPACE, propagation="Foreground")
    await end(cluster, names)
    assert await cluster.client.list(Job, namespace=NAMESPACE) == ()


async def delete_namespace(cluster: ControlledCluster, names: list[str]) -> None:
    await cluster.client.delete(Namespace, NAMESPACE)
    await end(cluster, names)
    # The claim is released when its workload is checked the next time.
    await cluster.settle(120)
    assert NAMESPACE not in {each.metadata.name for each in await cluster.client.list(Namespace)}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [delete_owner_last, delete_namespace], ids=lambda each: each.__name__)
def test_the_cost_of_ending_pods_grows_with_their_number_and_no_faster(scenario: Scenario) -> None:
    assert calls_of(scenario, 2 * SMALL) <= LINEAR_MAX * calls_of(scenario, SMALL)


def test_pods_that_are_done_do_not_count_when_users_of_a_claim_are_searched() -> None:
    def calls(done: int) -> int:
        pods = SharedInformers(ApiCalls(None, field_manager="")).informer_for(resource_for(Pod))  # type: ignore[arg-type]
        for number in range(done + 1):
            phase = "Succeeded" if number < done else "Running"
            document = pod(f"p-{number}", {"gpu": existing("shared")}, node="node-a")
            pods.put(seen(document, phase=phase))
        with counted_calls() as counted:
            assert any(users_of(claim("shared", request(), namespace="default"), pods))
        return counted.calls

    assert calls(done=40) == calls(done=1)


def calls_of(scenario: Scenario, pods: int) -> int:
    async def main() -> int:
        async with controlled_cluster(only=("claim-templates", "claim-lifecycle", "jobs")) as cluster:
            names = await pods_of_a_job(cluster, pods)
            await cluster.settle()
            with counted_calls() as counted:
                await scenario(cluster, names)
            return counted.calls

    return run_virtual(main())


async def pods_of_a_job(cluster: ControlledCluster, count: int) -> list[str]:
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    # Suspended: the test makes its pods.
    owner = await cluster.client.create(job("training", namespace=NAMESPACE, suspend=True))
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "training", "uid": owner.metadata.uid}
    await cluster.client.create(claim("shared", request(), namespace=NAMESPACE))
    await cluster.protect("shared", NAMESPACE)
    consumer = ConsumerReference(api_group="batch", resource="jobs", name="training", uid=owner.metadata.uid)
    await cluster.allocate("shared", [consumer], allocation(held("gpu-0")), NAMESPACE)
    names = [f"training-{number}" for number in range(count)]
    for name in names:
        document = pod(name, {"gpu": existing("shared")}, namespace=NAMESPACE, node="node-a")
        metadata = {**document["metadata"], "ownerReferences": [{**reference, "blockOwnerDeletion": True}]}
        await cluster.client.create({**document, "metadata": metadata})
    return names
