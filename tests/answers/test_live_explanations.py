"""`explain` about pods of a running cluster, from the API server to the node: what it says is what happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.live_cluster import read_cluster
from dralloc.answers.pod_explanation import SubjectExplanation, explain_pod
from dralloc.controllers.controller_set import WITHOUT_NODES, ControllerSet
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.features import FeatureGates
from dralloc.rpc import plugin_services
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.testing.builders import CLASS, NODE, allocation, claim, device, device_class, held, request, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.cluster import TestCluster, cluster_on
from tests.support.node_cluster import node_cluster, replace_uid, short_directory
from tests.support.scheduled_cluster import ScheduledCluster, node
from tests.support.scripted_driver import ScriptedDriver
from tests.support.workloads import claim_template, existing, pod, quota, template

# In virtual time: everything that can happen has happened, and a claim that is not made yet is overdue.
SETTLED_S = 30.0


async def explained(cluster: TestCluster, name: str = "p") -> SubjectExplanation:
    objects = ClusterObjects(FeatureGates.defaults(), "the cluster")
    for found in (await read_cluster(cluster.administrator, "default")).values():
        for item in found.objects:
            objects.add(item)
    return explain_pod(Engine(objects, cluster.clock.now()), objects.find(Pod, "pod", name))


def settled(*items: Any, controllers: bool = True) -> SubjectExplanation:
    """The explanation of pod `p` in a cluster that got these objects, and has had time to work on them."""

    async def main() -> SubjectExplanation:
        async with cluster_on(ScheduledCluster) as cluster:
            cluster.start(SchedulerSettings())
            if controllers:
                running = ControllerSet(
                    cluster.network, clock=cluster.clock, gates=FeatureGates.defaults(), only=WITHOUT_NODES
                )
                cluster.components.start("controllers", running.run)
            await cluster.create(
                node(NODE), device_class(), resource_slice("gpus", device("gpu-0"), device("gpu-1")), *items
            )
            await cluster.settle(SETTLED_S)
            return await explained(cluster)

    return run_virtual(main())


def ours(name: str = "p", claims: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    document = pod(name, claims, scheduler="dralloc")
    document["spec"] |= spec
    return document


def first(found: SubjectExplanation) -> tuple[str, str]:
    return found.blockers[0].stage.value, found.blockers[0].reason


MADE = {"gpu": template("one")}
ONE = claim_template("one", request())


def test_a_pod_that_is_placed() -> None:
    found = settled(ONE, ours(claims=MADE))
    assert (found.verdict, found.blockers) == ("Allocated", ())


def test_a_claim_that_the_quota_refuses() -> None:
    limit = quota("limits", {f"{CLASS}.deviceclass.resource.k8s.io/devices": "1"})
    found = settled(limit, ONE, ours("other", MADE), ours(claims=MADE))
    assert first(found) == ("Claims", "QuotaExceeded")
    assert "exceeded quota: limits, requested: " in next(found.lines())


def test_a_template_that_is_missing() -> None:
    assert first(settled(ours(claims=MADE))) == ("Claims", "TemplateMissing")


def test_a_controller_that_does_not_run() -> None:
    assert first(settled(ONE, ours(claims=MADE), controllers=False)) == ("Claims", "ClaimNotCreated")


def test_a_gate() -> None:
    assert first(settled(ONE, ours(claims=MADE, schedulingGates=[{"name": "example.com/wait"}]))) == (
        "SchedulingGates",
        "Gated",
    )


def test_another_scheduler() -> None:
    assert first(settled(ONE, ours(claims=MADE, schedulerName="other"))) == ("SchedulerName", "OtherScheduler")


def test_a_pod_that_does_not_fit() -> None:
    found = settled(claim_template("one", request(count=3)), ours(claims=MADE))
    assert first(found) == ("Scheduling", "DoesNotFit")


def test_devices_that_their_driver_does_not_make_ready() -> None:
    late = resource_slice(
        "late", device("late-0", binding_conditions=("Attached",)), pool="late", driver="late.example.com"
    )
    wanted = claim("wanted", request(where='device.driver == "late.example.com"'))
    found = settled(late, replace_uid(wanted), ours(claims={"gpu": existing("wanted")}))
    assert first(found) == ("Binding", "DevicesPending")


def test_a_pod_that_was_created_with_a_node() -> None:
    wanted = replace_uid(claim("wanted", request(count=9)))
    found = settled(wanted, ours(claims={"gpu": existing("wanted")}, nodeName=NODE))
    assert first(found) == ("Binding", "NotAllocated")


# --- The node's side, with real sockets -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_registered", [False, True])
def test_a_driver_that_is_missing_or_fails(is_registered: bool) -> None:
    async def refuse(service: plugin_services.PluginService, request: Any, context: Any) -> Any:
        raise RuntimeError("the card is on fire")

    async def main() -> SubjectExplanation:
        with short_directory() as directory:
            async with node_cluster(directory) as cluster:
                await cluster.create_claim("claim", allocation(held("gpu-0")))
                if not is_registered:
                    await cluster.run_pod("p", "claim")
                    await cluster.event_where(lambda event: event.reason == "FailedPrepareDynamicResources")
                    return await explained(cluster)
                async with ScriptedDriver(directory, on_prepare=refuse) as driver:
                    await driver.until(lambda: (True, "") in driver.registrations)
                    await cluster.run_pod("p", "claim")
                    await cluster.event_where(lambda event: "on fire" in event.message)
                    return await explained(cluster)

    found = asyncio.run(main())
    assert first(found) == ("Node", "FailedPrepareDynamicResources" if is_registered else "DriverNotRegistered")
    told = next(found.lines())
    assert ("the card is on fire" if is_registered else "DRA driver gpu.example.com is not registered") in told
