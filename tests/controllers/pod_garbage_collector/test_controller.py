"""Pods that no node will ever end are deleted."""

from __future__ import annotations

from dralloc.controllers.pod_garbage_collector import surplus
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.testing.virtual_time import run_virtual
from tests.support.beating_nodes import beating_cluster
from tests.support.workloads import pod, seen


def test_pods_of_a_deleted_node() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b") as cluster:
            await cluster.running_pod(pod("p"), "a")
            await cluster.running_pod(pod("q"), "b")
            await cluster.silence("a")
            await cluster.client.delete(Node, "a")
            await cluster.settle(30)
            assert await cluster.exists(Pod, "p")
            await cluster.settle(40)
            assert not await cluster.exists(Pod, "p")
            assert await cluster.exists(Pod, "q")
            assert 'pod_gc_collector_force_delete_pods_total{reason="orphaned"} 1' in cluster.metrics

    run_virtual(main())


def test_a_node_that_is_created_again_keeps_its_pods() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b") as cluster:
            await cluster.running_pod(pod("p"), "a")
            await cluster.silence("a")
            await cluster.client.delete(Node, "a")
            await cluster.settle(30)
            await cluster.add_node("a")
            await cluster.settle(300)
            assert not (await cluster.pod("p")).is_terminating

    run_virtual(main())


def test_pods_that_are_deleted_on_a_node_out_of_service() -> None:
    async def main() -> None:
        async with beating_cluster("a", "b", "c") as cluster:
            await cluster.running_pod(pod("p"), "a")
            await cluster.silence("a")
            await cluster.settle(100)
            await cluster.client.delete(Pod, "p")
            await cluster.settle(100)
            # It ends only when someone says that the node does not run any more.
            assert (await cluster.pod("p")).is_terminating
            taints = [
                *(await cluster.node("a")).spec.taints,
                {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"},
            ]
            await cluster.client.patch(Node, "a", {"spec": {"taints": taints}})
            await cluster.settle(30)
            assert not await cluster.exists(Pod, "p")

    run_virtual(main())


def test_too_many_finished_pods() -> None:
    documents = [pod(f"p{number}") for number in range(5)]
    for number, document in enumerate(documents):
        document["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{number}Z"
    pods = [seen(document, phase="Failed") for document in documents]
    assert surplus(pods, 5) == ()
    assert [each.metadata.name for each in surplus(reversed(pods), 3)] == ["p0", "p1"]
