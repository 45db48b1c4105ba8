"""Pods with affinity to other pods and with topology spread constraints, on a running cluster."""

from __future__ import annotations

from collections import Counter

from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod
from tests.support.workloads import Document

WEB: Document = {"labelSelector": {"matchLabels": {"app": "web"}}}
HOST: Document = {"topologyKey": "kubernetes.io/hostname"}


def web(name: str, **spec: Document | list[Document]) -> Document:
    made = our_pod(name, labels={"app": "web"})
    made["spec"] |= spec
    return made


def required(side: str, *terms: Document) -> Document:
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


@in_cluster()
async def test_replicas_that_repel_each_other_get_a_node_each(cluster: ScheduledCluster) -> None:
    apart = required("podAntiAffinity", {**WEB, **HOST})
    # All are created before one is bound: a decision counts before it is written.
    await cluster.create(node("a"), node("b"), *(web(f"p{number}", affinity=apart) for number in range(3)))
    await cluster.settle()
    nodes = [await cluster.node_of(f"p{number}") for number in range(3)]
    assert sorted(nodes) == ["", "a", "b"]
    waiting, running = f"p{nodes.index('')}", f"p{nodes.index('a')}"
    told = (await cluster.condition(waiting)).message
    same = "a pod that the pod anti-affinity excludes has the same kubernetes.io/hostname"
    assert told == f"0/2 nodes are available: 2 nodes: {same}"
    await cluster.client.patch(Pod, running, {"metadata": {"labels": {"app": "db"}}})
    await cluster.settle()
    # Its own anti-affinity keeps the pod from its node still.
    assert await cluster.node_of(waiting) == ""
    assert "excluded by the anti-affinity of pod default/" in (await cluster.condition(waiting)).message
    await cluster.client.patch(Pod, running, {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.settle()
    assert await cluster.node_of(waiting) == "a"


@in_cluster()
async def test_a_pod_waits_for_the_pod_that_it_wants_to_join(cluster: ScheduledCluster) -> None:
    together = required("podAffinity", {"labelSelector": {"matchLabels": {"app": "db"}}, **HOST})
    await cluster.create(node("a"), node("b"), node("c"), web("p", affinity=together))
    await cluster.settle()
    told = (await cluster.condition("p")).message
    assert "3 nodes: no pod that the pod affinity requires has the same kubernetes.io/hostname" in told
    await cluster.create(our_pod("db", labels={"app": "db"}))
    await cluster.settle()
    assert await cluster.node_of("p") == await cluster.node_of("db") != ""


@in_cluster()
async def test_the_first_of_pods_that_want_to_be_together_decides_where(cluster: ScheduledCluster) -> None:
    together = required("podAffinity", {**WEB, **HOST})
    await cluster.create(node("a"), node("b"), *(web(f"p{number}", affinity=together) for number in range(4)))
    await cluster.settle()
    assert len({await cluster.node_of(f"p{number}") for number in range(4)} - {""}) == 1


@in_cluster()
async def test_pods_are_spread_over_zones(cluster: ScheduledCluster) -> None:
    zones = {"a": "east", "b": "east", "c": "west"}
    evenly: Document = {**WEB, "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    await cluster.create(*(node(name, labels={"zone": zone}) for name, zone in zones.items()), node("nowhere"))
    await cluster.create(*(web(f"p{number}", topologySpreadConstraints=[evenly]) for number in range(6)))
    await cluster.settle()
    placed = [await cluster.node_of(f"p{number}") for number in range(6)]
    assert Counter(zones[name] for name in placed) == {"east": 3, "west": 3}


@in_cluster()
async def test_a_node_that_is_deleted_wakes_pods_that_are_to_be_spread(cluster: ScheduledCluster) -> None:
    spread = [{"maxSkew": 1, **HOST, "whenUnsatisfiable": "DoNotSchedule", **WEB}]
    await cluster.create(node("a"), node("empty", pods="0"))
    await cluster.create(web("p0", topologySpreadConstraints=spread))
    await cluster.settle()
    await cluster.create(web("p1", topologySpreadConstraints=spread))
    await cluster.settle()
    assert (await cluster.node_of("p0"), await cluster.node_of("p1")) == ("a", "")
    await cluster.client.delete(Node, "empty")
    await cluster.settle()
    assert await cluster.node_of("p1") == "a"
