"""Nodes that fall silent, in virtual time: conditions, taints, and the pods on them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from dralloc.kube.coordination_v1 import SHARED_LEASE
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.node.heartbeat import renew_lease
from dralloc.node.timings import DEFAULT_TIMINGS
from dralloc.testing.virtual_time import run_virtual
from tests.support.beating_nodes import beating_cluster
from tests.support.workloads import pod

UNREACHABLE = {"unreachable:NoSchedule", "unreachable:NoExecute"}


def test_a_silent_node_becomes_unknown_and_its_pods_leave() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b", "c") as cluster:
            await cluster.running_pod(pod("p"), "a")
            await cluster.silence("a")
            await cluster.settle(40)
            assert (await cluster.ready("a"), await cluster.taints("a")) == ("True", set())
            await cluster.settle(20)
            assert (await cluster.ready("a"), await cluster.taints("a")) == ("Unknown", UNREACHABLE)
            condition = next(each for each in (await cluster.node("a")).status.conditions if each.type == "Ready")
            assert (condition.reason, condition.message) == (
                "NodeStatusUnknown",
                "Kubelet stopped posting node status.",
            )
            assert await cluster.is_pod_ready("p") == "False"
            assert {event.reason for event in await cluster.events_of("a")} >= {"NodeNotReady"}
            # Pods tolerate the taint for five minutes.
            await cluster.settle(280)
            assert not (await cluster.pod("p")).is_terminating
            await cluster.settle(30)
            evicted = await cluster.pod("p")
            assert evicted.is_terminating
            assert [each.reason for each in evicted.status.conditions if each.type == "DisruptionTarget"] == [
                "DeletionByTaintManager"
            ]
            assert [await cluster.ready(name) for name in "bc"] == ["True", "True"]
            assert [await cluster.taints(name) for name in "bc"] == [set(), set()]

    run_virtual(main())


def test_a_node_that_returns_is_ready_at_once_and_keeps_its_pods() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b", "c") as cluster:
            await cluster.running_pod(pod("p"), "a")
            await cluster.silence("a")
            await cluster.settle(120)
            assert await cluster.taints("a") == UNREACHABLE
            await cluster.add_node("a")
            await cluster.settle()
            assert (await cluster.ready("a"), await cluster.taints("a")) == ("True", set())
            await cluster.settle(600)
            assert not (await cluster.pod("p")).is_terminating
            assert "Cancelling deletion of Pod default/p" in [each.message for each in await cluster.events_of("p")]

    run_virtual(main())


def test_a_status_is_a_sign_of_life_too() -> None:
    """Agents without leases post their status often."""

    async def main() -> None:
        async with beating_cluster("a", "b") as cluster:
            await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old"}})
            for number in range(20):
                heartbeat = f"2026-01-01T00:{number:02}:00Z"
                ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}
                await cluster.client.patch(Node, "old", {"status": {"conditions": [ready]}}, subresource="status")
                await cluster.settle(30)
            assert await cluster.ready("old") == "True"
            await cluster.settle(60)
            assert await cluster.ready("old") == "Unknown"

    run_virtual(main())


def test_a_node_that_never_says_anything() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b") as cluster:
            await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mute"}})
            await cluster.settle(50)
            assert (await cluster.node("mute")).status.conditions == ()
            await cluster.settle(25)
            (condition,) = (await cluster.node("mute")).status.conditions
            assert (condition.status, condition.reason) == ("Unknown", "NodeStatusNeverUpdated")

    run_virtual(main())


def test_a_node_that_says_that_it_is_not_ready() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b", "c") as cluster:
            ready = {"type": "Ready", "status": "False"}
            await cluster.silence("a")
            await cluster.client.patch(Node, "a", {"status": {"conditions": [ready]}}, subresource="status")
            await cluster.settle(20)
            assert await cluster.taints("a") == {"not-ready:NoSchedule", "not-ready:NoExecute"}
            # Then it falls silent: the taints follow the condition at once.
            await cluster.settle(60)
            assert await cluster.taints("a") == UNREACHABLE

    run_virtual(main())


def test_taints_of_others_are_kept() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b", "c") as cluster:
            await cluster.client.patch(Node, "a", {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})
            await cluster.client.patch(Node, "b", {"spec": {"unschedulable": True}})
            await cluster.silence("a")
            await cluster.settle(100)
            assert await cluster.taints("a") == {"x:NoExecute", *UNREACHABLE}
            assert await cluster.taints("b") == {"unschedulable:NoSchedule"}
            await cluster.client.patch(Node, "b", {"spec": {"unschedulable": None}})
            await cluster.add_node("a")
            await cluster.settle()
            assert (await cluster.taints("a"), await cluster.taints("b")) == ({"x:NoExecute"}, set())

    run_virtual(main())


def test_nodes_of_a_healthy_zone_are_evicted_one_after_the_other() -> None:
    async def main() -> None:
        names = [f"n{number}" for number in range(10)]
        async with beating_cluster(*names) as cluster:
            await cluster.silence(*names[:4])
            await cluster.settle(51)
            counts = []
            for _ in range(6):
                counts.append(len(await cluster.evicting()))
                await cluster.settle(10)
            # All are unknown within five seconds; one in ten seconds gets a taint that evicts.
            assert counts == sorted(counts)
            assert counts[-1] == 4
            assert all(later - earlier <= 1 for earlier, later in pairwise(counts))

    run_virtual(main())


def test_a_small_zone_that_is_mostly_gone_has_no_evictions() -> None:
    async def main() -> None:
        names = [f"n{number}" for number in range(10)]
        async with beating_cluster(*names) as cluster:
            await cluster.silence(*names[:6])
            await cluster.settle(600)
            assert [await cluster.ready(name) for name in names[:6]] == ["Unknown"] * 6
            # Before the sixth was found, one may have been tainted.
            assert len(await cluster.evicting()) <= 1

    run_virtual(main())


def test_nothing_is_evicted_while_no_node_is_ready() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b", "c") as cluster:
            await cluster.running_pod(pod("p"), "a")
            await cluster.silence("a")
            await cluster.settle(100)
            assert await cluster.evicting() == ["a"]
            await cluster.silence("b", "c")
            await cluster.settle(900)
            assert await cluster.evicting() == []
            assert await cluster.taints("b") == {"unreachable:NoSchedule"}
            assert not (await cluster.pod("p")).is_terminating
            # One returns: the others get a new grace period, and are evicted after it.
            await cluster.add_node("c")
            await cluster.settle(30)
            assert (await cluster.ready("c"), await cluster.taints("c")) == ("True", set())
            await cluster.settle(60)
            assert await cluster.evicting() == ["a", "b"]

    run_virtual(main())


def test_nodes_that_share_a_lease_live_and_die_together() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b") as cluster:
            for number in range(3):
                metadata = {"name": f"s{number}", "annotations": {SHARED_LEASE: "shared"}}
                status = {"conditions": [{"type": "Ready", "status": "True"}]}
                await cluster.client.create(
                    {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
                )

            async def beat() -> None:
                while True:
                    await renew_lease(cluster.calls(), "shared", cluster.clock.now(), DEFAULT_TIMINGS)
                    await asyncio.sleep(10)

            cluster.components.start("shared", beat)
            await cluster.settle(300)
            assert [await cluster.ready(f"s{number}") for number in range(3)] == ["True"] * 3
            await cluster.silence("shared")
            await cluster.settle(70)
            assert [await cluster.ready(f"s{number}") for number in range(3)] == ["Unknown"] * 3

    run_virtual(main())


def test_a_node_that_was_believed_to_be_gone_contradicts() -> None:
    """The controllers cannot reach the server for a while, or see leases late; the node has never been away."""

    async def main() -> None:
        async with beating_cluster("a", "b", "c") as cluster:
            unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
            await cluster.client.patch(Node, "a", {"status": {"conditions": [unknown]}}, subresource="status")
            # Nobody watches for this heartbeat; its status of every five minutes is enough.
            await cluster.settle(310)
            assert (await cluster.ready("a"), await cluster.taints("a")) == ("True", set())

    run_virtual(main())


def test_the_controllers_restart_at_any_time() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b", "c") as cluster:
            await cluster.running_pod(pod("p"), "a")
            await cluster.silence("a")
            for _ in range(8):
                await cluster.settle(11)
                await cluster.kill()
                cluster.start()
            # The grace period starts anew with each term.
            assert await cluster.ready("a") == "True"
            await cluster.settle(60)
            assert await cluster.taints("a") == UNREACHABLE
            await cluster.kill()
            cluster.start()
            await cluster.settle(310)
            assert (await cluster.client.get(Pod, "p")).is_terminating

    run_virtual(main())
