"""Taints evict pods or do not, against a real server in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.kube.core_v1 import Event
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import (
    EFFECT_NONE,
    NO_EXECUTE,
    NO_SCHEDULE,
    ConsumerReference,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
)
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import allocation, claim, device, held, request, resource_slice, taint, toleration
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.network import Faults
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.workloads import existing, pod

Scenario = Callable[[ControlledCluster], Awaitable[None]]
EVICTING = taint("faulty", "yes", NO_EXECUTE)


def play(scenario: Scenario, gates: FeatureGates | None = None) -> None:
    async def main() -> None:
        async with controlled_cluster(only=("taint-eviction",), gates=gates) as cluster:
            await scenario(cluster)

    run_virtual(main())


def rule(effect: str = NO_EXECUTE, *, selector: dict[str, str] | None = None, name: str = "rule") -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector or {}, "taint": {"key": "faulty", "value": "yes", "effect": effect}},
    }


async def run_pod(
    cluster: ControlledCluster, name: str, device_name: str = "gpu-0", tolerations: Sequence[DeviceToleration] = ()
) -> None:
    """A running pod with a claim of the same name for one device."""
    await cluster.client.create(claim(name, request()))
    await cluster.client.create(pod(name, {"gpu": existing(name)}))
    await cluster.schedule(name, name, allocation(replace(held(device_name), tolerations=tuple(tolerations))))


async def is_terminating_pod(cluster: ControlledCluster, name: str) -> bool:
    return (await cluster.pod(name)).is_terminating


async def events_about(cluster: ControlledCluster, name: str) -> list[tuple[str, str]]:
    events = await cluster.client.list(Event, fields=f"involvedObject.name={name}")
    return [(event.reason, event.message) for event in events]


async def condition(cluster: ControlledCluster, name: str = "rule") -> Condition:
    (entry,) = (await cluster.client.get(DeviceTaintRule, name)).status.conditions
    return entry


def test_a_rule_evicts_pods_and_reports_it() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await run_pod(cluster, "affected", "gpu-0")
        await run_pod(cluster, "spared", "gpu-1")
        await cluster.client.create(rule(selector={"device": "gpu-0"}))
        await cluster.settle()
        affected = await cluster.pod("affected")
        assert affected.is_terminating
        (disruption,) = [entry for entry in affected.status.conditions if entry.type == "DisruptionTarget"]
        assert (disruption.status, disruption.reason) == ("True", "DeletionByDeviceTaintManager")
        assert disruption.message == "Device Taint manager: deleting due to NoExecute taint"
        assert await events_about(cluster, "affected") == [("DeviceTaintManagerEviction", "Marking for deletion")]
        assert not await is_terminating_pod(cluster, "spared")
        assert "device_taint_eviction_controller_pod_deletions_total 1" in cluster.metrics.splitlines()
        assert "device_taint_eviction_controller_pod_deletion_duration_seconds_count 1" in cluster.metrics

    play(scenario)


def test_a_taint_in_a_slice_evicts_and_a_new_generation_without_it_does_not() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(resource_slice("old", device("gpu-0"), device("gpu-1", taints=[EVICTING])))
        await cluster.client.create(resource_slice("new", device("gpu-1"), generation=2))
        await run_pod(cluster, "p", "gpu-1")
        await cluster.settle(60)
        assert not await is_terminating_pod(cluster, "p")
        await cluster.client.create(resource_slice("newer", device("gpu-1", taints=[EVICTING]), generation=3))
        await cluster.settle()
        assert await is_terminating_pod(cluster, "p")

    play(scenario)


@pytest.mark.parametrize("effect", [NO_SCHEDULE, EFFECT_NONE])
def test_other_effects_evict_no_pods(effect: str) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await run_pod(cluster, "p")
        await cluster.client.create(rule(effect))
        await cluster.settle(60)
        assert not await is_terminating_pod(cluster, "p")

    play(scenario)


def test_a_pod_is_evicted_when_its_toleration_ends() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        patient = replace(toleration("faulty"), toleration_seconds=60)
        await run_pod(cluster, "p", tolerations=[patient])
        await cluster.client.create(rule())
        await cluster.settle(55)
        assert not await is_terminating_pod(cluster, "p")
        assert (await condition(cluster)).reason == "PodsPendingEviction"
        await cluster.settle(10)
        assert await is_terminating_pod(cluster, "p")

    play(scenario)


def test_an_eviction_that_is_no_longer_needed_is_cancelled() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        patient = replace(toleration("faulty"), toleration_seconds=60)
        await run_pod(cluster, "p", tolerations=[patient])
        await cluster.client.create(rule())
        await cluster.settle(30)
        await cluster.client.delete(DeviceTaintRule, "rule")
        await cluster.settle(600)
        assert not await is_terminating_pod(cluster, "p")
        assert await events_about(cluster, "p") == [("DeviceTaintManagerEviction", "Cancelling deletion")]

    play(scenario)


def test_a_recreated_rule_counts_from_zero() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await run_pod(cluster, "p", tolerations=[replace(toleration("faulty"), toleration_seconds=600)])
        for _ in range(2):
            await cluster.client.create(rule())
            await cluster.settle(20)
            shown = await condition(cluster)
            assert (shown.reason, shown.message) == (
                "PodsPendingEviction",
                "1 pod in 1 namespace pending eviction.",
            )
            await cluster.client.delete(DeviceTaintRule, "rule")
            await cluster.settle()

    play(scenario)


def test_a_restarted_controller_evicts_pods_that_are_due_and_schedules_the_others() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.kill()
        await run_pod(cluster, "due", "gpu-0")
        await run_pod(cluster, "later", "gpu-1", [replace(toleration("faulty"), toleration_seconds=120)])
        await cluster.client.create(rule())
        await asyncio.sleep(60)
        cluster.start()
        await cluster.settle()
        assert await is_terminating_pod(cluster, "due")
        assert not await is_terminating_pod(cluster, "later")
        await cluster.settle(60)
        assert await is_terminating_pod(cluster, "later")

    play(scenario)


def test_pods_of_a_workload_are_evicted_without_reservations_of_their_own() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        job = ConsumerReference(api_group="batch", resource="jobs", name="job", uid="uid-of-job")
        await cluster.client.create(claim("shared", request(), reserved_for=job))
        await cluster.protect("shared")
        await cluster.allocate("shared", [job], replace(allocation(held("gpu-0")), reserved_for_any_pod=True))
        for name in ("running", "waiting"):
            await cluster.client.create(pod(name, {"gpu": existing("shared")}))
        await cluster.client.create(pod("unrelated"))
        await cluster.bind("running")
        await cluster.client.create(rule())
        await cluster.settle()
        assert await is_terminating_pod(cluster, "running")
        assert not await cluster.exists(Pod, "waiting")
        assert not await is_terminating_pod(cluster, "unrelated")

    play(scenario)


def test_the_status_of_a_rule_shows_the_progress_with_few_writes() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        for number in range(3):
            patient = replace(toleration("faulty"), toleration_seconds=20 * number)
            await run_pod(cluster, f"p{number}", f"gpu-{number}", [patient])
        await cluster.client.create(rule())
        written: list[tuple[float, str, str]] = []

        async def watch() -> None:
            async for event in cluster.client.watch(DeviceTaintRule):
                now_s = asyncio.get_running_loop().time()
                written.extend((now_s, entry.reason, entry.message) for entry in event.object.status.conditions)

        watching = asyncio.create_task(watch())
        await cluster.settle(120)
        watching.cancel()
        assert written[0][1] == "PodsPendingEviction"
        assert written[-1][1:] == (
            "Completed",
            "No pods are pending eviction. 3 pods evicted since the controller started.",
        )
        times = [time for time, _, _ in written]
        assert all(later - earlier >= 10 for earlier, later in pairwise(times))
        assert len(times) <= 4

    play(scenario)


def test_the_effect_none_gives_a_preview() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(resource_slice("s", *(device(f"gpu-{number}") for number in range(4))))
        await run_pod(cluster, "affected", "gpu-0")
        await run_pod(cluster, "tolerant", "gpu-1", [toleration("faulty")])
        await cluster.client.create(rule(EFFECT_NONE, selector={"driver": "gpu.example.com"}))
        await cluster.settle()
        entry = await condition(cluster)
        assert (entry.reason, entry.observed_generation) == ("NoEffect", 1)
        assert entry.message.startswith(
            "The rule selects 4 published devices; 2 selected devices allocated. "
            "With the effect NoExecute, 1 pod in 1 namespace would be evicted."
        )
        assert not await is_terminating_pod(cluster, "affected")
        # The effect changes to NoExecute.
        patch = {"spec": {"taint": {"effect": NO_EXECUTE}}}
        await cluster.client.patch(DeviceTaintRule, "rule", patch)
        await cluster.settle()
        assert await is_terminating_pod(cluster, "affected")
        assert not await is_terminating_pod(cluster, "tolerant")

    play(scenario)


def test_slices_evict_on_a_server_without_taint_rules() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await run_pod(cluster, "p")
        await cluster.client.create(rule())
        await cluster.settle(60)
        assert not await is_terminating_pod(cluster, "p")
        await cluster.client.create(resource_slice("s", device("gpu-0", taints=[EVICTING])))
        await cluster.settle()
        assert await is_terminating_pod(cluster, "p")

    play(scenario, FeatureGates.parse("DRADeviceTaintRules=false"))


@pytest.mark.parametrize("seed", range(4))
def test_evictions_converge_over_a_bad_network(seed: int) -> None:
    async def main() -> None:
        async with controlled_cluster(only=("taint-eviction",), seed=seed) as cluster:
            cluster.network.faults = Faults(lose_request=0.2, lose_answer=0.2, break_stream=0.1)
            for number in range(6):
                await run_pod(cluster, f"p{number}", f"gpu-{number}")
            await cluster.client.create(rule())
            await cluster.settle(60)
            await cluster.kill()
            cluster.start()
            await run_pod(cluster, "late", "gpu-9")
            await cluster.settle(120)
            assert all(item.is_terminating for item in await cluster.client.list(Pod))
            assert len(await cluster.client.list(ResourceClaim)) == 7

    run_virtual(main())
