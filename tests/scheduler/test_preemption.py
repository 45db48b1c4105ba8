"""Preemption by the whole scheduler, against a real API server in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod, PodCondition, PodStatus
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.bind.evictor import Evictor
from dralloc.testing.builders import claim, device_class, request
from dralloc.testing.virtual_time import run_virtual
from tests.support.scheduled_cluster import (
    ScheduledCluster,
    gpus,
    in_cluster,
    node,
    of_priority,
    scheduled_cluster,
)
from tests.support.scripted_transport import Loss, ScriptedTransport
from tests.support.workloads import Document, pod_group

GATE = "DRAPreemption=true"


def priority_class(name: str, value: int, **more: Any) -> Document:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value, **more}


async def make_cluster(cluster: ScheduledCluster, devices: int = 1, cpu: str = "4") -> None:
    classes = [priority_class(name, value) for name, value in (("low", 1), ("middle", 5), ("high", 10))]
    await cluster.create(device_class(), node("node-a", cpu=cpu), *classes)
    if devices:
        await cluster.create(gpus("node-a", devices))


async def make_pod(cluster: ScheduledCluster, name: str, priority: str, **more: Any) -> None:
    """A pod with a claim for one device."""
    await cluster.create(claim(f"claim-of-{name}", request()), of_priority(name, priority, f"claim-of-{name}", **more))
    await cluster.settle()


async def conditions(cluster: ScheduledCluster, pod: str) -> dict[str, PodCondition]:
    return {each.type: each for each in (await cluster.pod(pod)).status.conditions}


async def finish_eviction(cluster: ScheduledCluster, pod: str) -> None:
    """The node ends the pod, and the claim controller releases its claim."""
    assert (await cluster.pod(pod)).is_terminating
    await cluster.remove_pod(pod)
    await cluster.release(f"claim-of-{pod}")
    await cluster.settle()


@in_cluster(GATE)
async def test_a_pod_of_higher_priority_gets_the_device_of_another(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "high")
    weak, strong = await cluster.pod("weak"), await cluster.pod("strong")
    assert weak.is_terminating
    disruption = (await conditions(cluster, "weak"))["DisruptionTarget"]
    assert (disruption.status, disruption.reason) == ("True", "PreemptionByScheduler")
    assert "Preempted by pod default/strong on node node-a" in [
        each.message for each in await cluster.events_of("weak")
    ]
    assert strong.status.nominated_node_name == "node-a"
    assert "preemption: evicting pod weak to make room on node node-a" in (await cluster.condition("strong")).message
    assert not strong.spec.node_name
    await finish_eviction(cluster, "weak")
    assert await cluster.node_of("strong") == "node-a"
    assert await cluster.devices_of("claim-of-strong") == ["gpu-0"]


@in_cluster()
async def test_nothing_is_evicted_while_the_gate_is_off(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "high")
    assert not (await cluster.pod("weak")).is_terminating
    assert "preemption" not in (await cluster.condition("strong")).message


@in_cluster(GATE)
async def test_a_pod_whose_policy_is_never_waits(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await cluster.create(priority_class("polite", 10, preemptionPolicy="Never"))
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "polite")
    assert not (await cluster.pod("weak")).is_terminating
    assert "preemption: its preemptionPolicy is Never" in (await cluster.condition("strong")).message


@in_cluster(GATE)
async def test_pods_of_the_same_priority_are_not_evicted(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "first", "high")
    await make_pod(cluster, "second", "high")
    assert not (await cluster.pod("first")).is_terminating
    assert "preemption" not in (await cluster.condition("second")).message


@in_cluster(GATE)
async def test_a_pod_that_was_deleted_meanwhile_is_not_nominated(cluster: ScheduledCluster) -> None:
    await cluster.kill()
    await make_cluster(cluster)
    await make_pod(cluster, "strong", "high")
    strong = await cluster.pod("strong")
    await cluster.remove_pod("strong")
    evictor = Evictor(cluster.client.calls, cluster.clock)
    # Victims are evicted only after a nomination.
    assert "not found" in (await evictor.nominate(strong, "node-a") or "")
    assert await evictor.nominate(replace(strong, status=PodStatus(nominated_node_name="node-a")), "") is None


@in_cluster(GATE)
async def test_the_freed_device_is_kept_for_the_nominated_pod(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "middle")
    # Of the same and of lower priority, while the victim ends.
    await make_pod(cluster, "rival", "middle")
    await make_pod(cluster, "weaker", "low")
    await finish_eviction(cluster, "weak")
    assert await cluster.node_of("strong") == "node-a"
    assert [await cluster.node_of(name) for name in ("rival", "weaker")] == ["", ""]


@in_cluster(GATE)
async def test_no_device_is_kept_for_a_nominated_pod_that_is_being_deleted(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "high")
    assert (await cluster.pod("strong")).status.nominated_node_name == "node-a"
    await cluster.client.patch(Pod, "strong", {"metadata": {"finalizers": ["example.com/wait"]}})
    await cluster.client.delete(Pod, "strong")
    await finish_eviction(cluster, "weak")
    await make_pod(cluster, "next", "low")
    await cluster.settle(30)
    assert await cluster.node_of("next") == "node-a"


@in_cluster(GATE)
async def test_a_new_leader_keeps_the_device_for_the_nominated_pod(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "middle")
    await cluster.kill()
    await cluster.remove_pod("weak")
    await cluster.create(claim("claim-of-rival", request()), of_priority("rival", "middle", "claim-of-rival"))
    await cluster.restart(GATE)
    await cluster.settle()
    await cluster.release("claim-of-weak")
    await cluster.settle()
    assert await cluster.node_of("strong") == "node-a"
    assert await cluster.node_of("rival") == ""


@in_cluster(GATE)
async def test_no_second_victim_is_evicted_while_the_first_ends(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster, devices=2)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "feeble", "low")
    await make_pod(cluster, "strong", "high")
    assert sum([(await cluster.pod(name)).is_terminating for name in ("weak", "feeble")]) == 1
    victim = "weak" if (await cluster.pod("weak")).is_terminating else "feeble"
    # The pod is gone, its claim still has the device.
    await cluster.remove_pod(victim)
    await cluster.settle(400)
    other = "feeble" if victim == "weak" else "weak"
    assert not (await cluster.pod(other)).is_terminating
    assert (await cluster.pod("strong")).status.nominated_node_name == "node-a"
    await cluster.release(f"claim-of-{victim}")
    await cluster.settle()
    assert await cluster.node_of("strong") == "node-a"


@in_cluster(GATE)
async def test_a_pod_of_even_higher_priority_takes_the_nominated_room(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "middle")
    await make_pod(cluster, "strongest", "high")
    await finish_eviction(cluster, "weak")
    assert await cluster.node_of("strongest") == "node-a"
    strong = await cluster.pod("strong")
    assert (strong.spec.node_name, strong.status.nominated_node_name) == ("", "")


def test_a_nomination_is_stored_however_late_the_end_of_an_earlier_one_is_written() -> None:
    """The next leader keeps the room for the pod only if it can read that."""

    def delay_s(request: ClientRequest) -> float:
        return 1.0 if b'"nominatedNodeName":null' in request.body else 0.0

    async def main() -> None:
        async with scheduled_cluster(
            gates=FeatureGates.parse(GATE),
            wrap=lambda inner: ScriptedTransport(inner, lambda _: Loss.NOTHING, delay_s),
        ) as cluster:
            await make_cluster(cluster)
            await cluster.create(node("node-b"), gpus("node-b"))
            for name in ("weak", "feeble"):
                await make_pod(cluster, name, "low")
            await make_pod(cluster, "strong", "middle")
            first = (await cluster.pod("strong")).status.nominated_node_name
            # It takes the room that becomes free there, so that the other pod is nominated for the other node.
            await make_pod(cluster, "strongest", "high")
            assert all([(await cluster.pod(name)).is_terminating for name in ("weak", "feeble")])
            nominated = [(await cluster.pod(name)).status.nominated_node_name for name in ("strongest", "strong")]
            assert nominated == [first, "node-b" if first == "node-a" else "node-a"]

    run_virtual(main())


@in_cluster(GATE)
async def test_a_nomination_that_was_removed_while_it_is_needed_is_stored_again(cluster: ScheduledCluster) -> None:
    """By a late write of an earlier leader, or by a user."""
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "high")
    await cluster.client.patch(Pod, "strong", {"status": {"nominatedNodeName": None}}, subresource="status")
    await cluster.settle()
    assert (await cluster.pod("strong")).status.nominated_node_name == "node-a"


@in_cluster(GATE)
async def test_a_device_is_kept_for_a_pod_of_another_scheduler_as_long_as_it_is_nominated(
    cluster: ScheduledCluster,
) -> None:
    await make_cluster(cluster)
    document = of_priority("strong", "high", "claim-of-strong")
    document["spec"]["schedulerName"] = "another"
    await cluster.create(claim("claim-of-strong", request()), document)
    await cluster.client.patch(Pod, "strong", {"status": {"nominatedNodeName": "node-a"}}, subresource="status")
    await make_pod(cluster, "weak", "low")
    assert await cluster.node_of("weak") == ""
    await cluster.client.patch(Pod, "strong", {"status": {"nominatedNodeName": None}}, subresource="status")
    await cluster.settle(30)
    assert await cluster.node_of("weak") == "node-a"


@in_cluster(GATE)
async def test_a_claim_that_another_pod_shares_is_not_worth_an_eviction(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await cluster.create(of_priority("partner", "high", "claim-of-weak"))
    await cluster.settle()
    await make_pod(cluster, "strong", "high")
    assert not (await cluster.pod("weak")).is_terminating
    message = (await cluster.condition("strong")).message
    assert "preemption: no eviction of pods with lower priority would help" in message


@in_cluster(GATE)
async def test_cpu_is_freed_too_and_a_budget_protects(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster, devices=0, cpu="2")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}},
    }
    await cluster.create(budget)
    one = {"requests": {"cpu": "1"}}
    await cluster.create(of_priority("kept", "low", labels={"app": "kept"}, **one))
    await cluster.create(of_priority("other", "middle", labels={"app": "other"}, **one))
    await cluster.settle()
    await cluster.create(of_priority("strong", "high", **one))
    await cluster.settle()
    assert [(await cluster.pod(name)).is_terminating for name in ("kept", "other")] == [False, True]


@in_cluster(GATE)
async def test_the_nomination_is_dropped_when_the_node_is_gone(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "high")
    assert (await cluster.pod("strong")).status.nominated_node_name == "node-a"
    await cluster.client.delete(ResourceSlice, "gpus-of-node-a")
    await cluster.client.delete(Node, "node-a")
    await cluster.settle(400)
    assert not (await cluster.pod("strong")).status.nominated_node_name


@in_cluster(GATE)
async def test_the_nomination_is_dropped_when_the_pod_lacks_its_claim(cluster: ScheduledCluster) -> None:
    """Other schedulers would keep a device for it for as long as it waits for a new one."""
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "high")
    assert (await cluster.pod("strong")).status.nominated_node_name == "node-a"
    await cluster.client.delete(ResourceClaim, "claim-of-strong")
    await cluster.settle(10)
    assert (await cluster.pod("strong")).status.nominated_node_name == ""
    assert "does not exist" in (await conditions(cluster, "strong"))["PodScheduled"].message


@in_cluster(GATE)
async def test_metrics_count_attempts_and_victims(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "high")
    text = cluster.schedulers[0].counters.text()
    assert "scheduler_preemption_victims_count 1" in text
    assert "scheduler_preemption_attempts_total 1" in text


# --- Gangs --------------------------------------------------------------------------------------------------------------

GANGS = f"{GATE},GenericWorkload=true"


async def make_gang(cluster: ScheduledCluster, size: int) -> None:
    group = pod_group("gang", min_count=size)
    await cluster.create({**group, "spec": {**group["spec"], "priorityClassName": "high"}})
    for number in range(size):
        name = f"member-{number}"
        document = of_priority(name, "high", f"claim-of-{name}", group="gang")
        await cluster.create(claim(f"claim-of-{name}", request()), document)
    await cluster.settle()


@in_cluster(GANGS)
async def test_a_gang_gets_the_devices_of_weaker_pods_together(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster, devices=3)
    for name in ("weak", "feeble", "other"):
        await make_pod(cluster, name, "low")
    await make_gang(cluster, 2)
    victims = [name for name in ("weak", "feeble", "other") if (await cluster.pod(name)).is_terminating]
    assert len(victims) == 2
    nominated = [(await cluster.pod(f"member-{number}")).status.nominated_node_name for number in range(2)]
    assert nominated == ["node-a", "node-a"]
    # The devices are kept for the gang, and no more pods are evicted.
    await make_pod(cluster, "rival", "high")
    for victim in victims:
        await finish_eviction(cluster, victim)
    assert [await cluster.node_of(f"member-{number}") for number in range(2)] == ["node-a", "node-a"]


async def make_pair(cluster: ScheduledCluster, priority: str) -> None:
    """A group of two pods that share a claim for one device, and of which one is enough."""
    group = pod_group("pair", min_count=1)
    await cluster.create({**group, "spec": {**group["spec"], "priorityClassName": priority}})
    await cluster.create(claim("claim-of-pair", request()))
    for name in ("left", "right"):
        await cluster.create(of_priority(name, priority, "claim-of-pair", group="pair"))
    await cluster.settle()


@in_cluster(GANGS)
async def test_gangs_that_wait_for_the_same_pods_to_leave_do_not_try_for_ever(cluster: ScheduledCluster) -> None:
    """Both fit once the pods have left. Each attempt of the stronger gang took the place of a pod of the weaker one, which took it
    back: without a pause, as nothing else was to do."""
    await make_cluster(cluster, devices=3)
    for name in ("weak", "feeble", "other"):
        await make_pod(cluster, name, "low")
    await make_pair(cluster, "middle")
    await make_gang(cluster, 2)
    assert all([(await cluster.pod(name)).is_terminating for name in ("weak", "feeble", "other")])
    for name in ("weak", "feeble", "other"):
        await finish_eviction(cluster, name)
    assert [await cluster.node_of(name) for name in ("member-0", "member-1", "left", "right")] == ["node-a"] * 4


@in_cluster(GANGS)
async def test_a_gang_takes_a_free_device_that_is_kept_for_a_weaker_pod(cluster: ScheduledCluster) -> None:
    """The weaker pod waits for a second device."""
    await make_cluster(cluster, devices=2)
    for name in ("weak", "feeble"):
        await make_pod(cluster, name, "low")
    await cluster.create(claim("both", request(count=2)), of_priority("strong", "middle", "both"))
    await cluster.settle()
    await finish_eviction(cluster, "weak")
    assert (await cluster.pod("strong")).status.nominated_node_name == "node-a"
    await make_gang(cluster, 1)
    assert await cluster.node_of("member-0") == "node-a"
    assert (await cluster.pod("strong")).status.nominated_node_name == ""


@in_cluster(GANGS)
async def test_no_device_is_kept_for_the_rest_of_a_nominated_gang(cluster: ScheduledCluster) -> None:
    """With too few members it cannot be tried, and only attempts ended nominations."""
    await make_cluster(cluster, devices=2)
    for name in ("weak", "feeble"):
        await make_pod(cluster, name, "low")
    await make_gang(cluster, 2)
    assert (await cluster.pod("member-0")).status.nominated_node_name == "node-a"
    await cluster.remove_pod("member-1")
    for name in ("weak", "feeble"):
        await finish_eviction(cluster, name)
    for name in ("late", "last"):
        await make_pod(cluster, name, "low")
    assert [await cluster.node_of(name) for name in ("late", "last")] == ["node-a", "node-a"]
    # Neither do other schedulers keep one, nor a new leader.
    assert (await cluster.pod("member-0")).status.nominated_node_name == ""


@in_cluster(GANGS)
async def test_nothing_is_evicted_for_a_gang_that_would_not_fit(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster, devices=2)
    await make_pod(cluster, "weak", "low")
    await make_pod(cluster, "strong", "high")
    await make_gang(cluster, 2)
    assert not (await cluster.pod("weak")).is_terminating


async def make_whole_group(cluster: ScheduledCluster) -> None:
    """Two pods of low priority that are evicted together."""
    await cluster.create(pod_group("whole", disruptionMode={"all": {}}, priorityClassName="low"))
    for name in ("one", "two"):
        await make_pod(cluster, name, "low", group="whole")


@in_cluster(GANGS)
async def test_a_group_that_is_disrupted_as_a_whole_is_evicted_as_a_whole(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster, devices=2)
    await make_whole_group(cluster)
    await make_pod(cluster, "strong", "high")
    assert [(await cluster.pod(name)).is_terminating for name in ("one", "two")] == [True, True]


@in_cluster(GANGS)
async def test_a_single_pod_is_evicted_rather_than_a_group(cluster: ScheduledCluster) -> None:
    await make_cluster(cluster, devices=3)
    await make_whole_group(cluster)
    await make_pod(cluster, "single", "low")
    await make_pod(cluster, "strong", "high")
    names = ("one", "two", "single")
    assert [(await cluster.pod(name)).is_terminating for name in names] == [False, False, True]


class LateAnswers(ScriptedTransport):
    """Evictions take some time to be answered, and conditions of pods cannot be written."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner, lambda request: Loss.REQUEST if b'"PodScheduled"' in request.body else Loss.NOTHING)

    async def send(self, request: ClientRequest) -> ClientResponse:
        response = await super().send(request)
        if request.method == "DELETE":
            await asyncio.sleep(20)
        return response


def test_a_gang_whose_victims_are_gone_before_the_scheduler_knows_is_tried_again() -> None:
    """Nothing else happens that would make the scheduler look at its queue."""

    async def main() -> None:
        async with scheduled_cluster(gates=FeatureGates.parse(GANGS), wrap=LateAnswers) as cluster:
            await make_cluster(cluster, devices=1)
            await make_pod(cluster, "weak", "low")
            await make_gang(cluster, 1)
            await finish_eviction(cluster, "weak")
            await cluster.settle(60)
            assert await cluster.node_of("member-0") == "node-a"

    run_virtual(main())
