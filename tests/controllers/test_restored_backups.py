"""Controllers do not rely on what a restored backup has undone."""

from __future__ import annotations

from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Event, Node
from dralloc.kube.pod_v1 import SUCCEEDED, Pod
from dralloc.kube.resource_v1 import NO_EXECUTE
from dralloc.testing.builders import allocation, claim, device, held, request, resource_slice, taint
from dralloc.testing.virtual_time import run_virtual
from tests.support.controlled_cluster import ControlledCluster
from tests.support.restorable_cluster import RestorableServer, restorable_cluster
from tests.support.workloads import existing, job, pod, quota


async def evict_again(cluster: ControlledCluster, server: RestorableServer) -> None:
    """The controller evicts the pod, a backup undoes that, and the controller does it again."""
    backup = await server.back_up()
    cluster.start()
    await cluster.settle()
    assert (await cluster.pod("p")).is_terminating
    await server.restore(backup)
    assert not (await cluster.pod("p")).is_terminating
    await cluster.settle(600)
    assert (await cluster.pod("p")).is_terminating


def test_a_pod_whose_eviction_from_a_device_was_undone_is_evicted_again() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("taint-eviction",)) as (cluster, server):
            await cluster.kill()
            tainted = resource_slice("slice", device("gpu-0", taints=(taint("faulty", "yes", NO_EXECUTE),)))
            await cluster.create(claim("c", request()), pod("p", {"gpu": existing("c")}), tainted)
            await cluster.schedule("p", "c", allocation(held("gpu-0")))
            await evict_again(cluster, server)

    run_virtual(main())


def test_a_pod_whose_eviction_from_a_node_was_undone_is_evicted_again() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("node-taint-eviction",)) as (cluster, server):
            await cluster.kill()
            taints = [{"key": "broken", "effect": NO_EXECUTE}]
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}, "spec": {"taints": taints}}
            await cluster.create(node, pod("p"))
            await cluster.bind("p")
            await evict_again(cluster, server)

    run_virtual(main())


def test_pods_of_a_job_that_were_undone_have_not_failed() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("jobs",)) as (cluster, server):
            await cluster.kill()
            await cluster.create(job("j", parallelism=3, completions=3, backoffLimit=0))
            backup = await server.back_up()
            cluster.start()
            await cluster.settle()
            assert len(await cluster.client.list(Pod)) == 3
            await server.restore(backup)
            await cluster.settle(30)
            status = (await cluster.client.get(Job, "j")).status
            assert (status.active, status.failed) == (3, 0)
            assert len(await cluster.client.list(Pod)) == 3

    run_virtual(main())


def test_a_pod_of_a_job_counts_once_that_a_backup_brings_back() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("jobs",)) as (cluster, server):
            await cluster.create(job("j", parallelism=1, completions=2))
            await cluster.settle()
            backup = await server.back_up()
            (first,) = await cluster.client.list(Pod)
            await cluster.end_pod(first.metadata.name, SUCCEEDED)
            await cluster.settle()
            await cluster.remove_pod(first.metadata.name)
            await cluster.settle()
            await server.restore(backup)
            await cluster.settle(30)
            await cluster.end_pod(first.metadata.name, SUCCEEDED)
            await cluster.settle(30)
            status = (await cluster.client.get(Job, "j")).status
            assert (status.active, status.succeeded, status.failed) == (1, 1, 0)

    run_virtual(main())


def test_pods_that_a_job_deletes_have_not_failed_after_a_restore() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("jobs",)) as (cluster, server):
            await cluster.create(job("j", parallelism=1, completions=1, backoffLimit=0))
            await cluster.settle()
            (leaving,) = await cluster.client.list(Pod)
            await cluster.bind(leaving.metadata.name)
            await cluster.client.patch(Job, "j", {"spec": {"parallelism": 0}})
            await cluster.settle()
            await server.restore(await server.back_up())
            await cluster.settle(30)
            await cluster.remove_pod(leaving.metadata.name)
            await cluster.settle()
            status = (await cluster.client.get(Job, "j")).status
            assert (status.active, status.failed, status.conditions) == (0, 0, ())

    run_virtual(main())


def test_pods_of_a_silent_node_are_not_ready_after_a_restore() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("node-lifecycle",)) as (cluster, server):
            ready = {"type": "Ready", "status": "True"}
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "node-a"},
                "status": {"conditions": [ready]},
            }
            await cluster.create(node, pod("p"))
            await cluster.bind("p")
            await cluster.client.patch(Pod, "p", {"status": {"conditions": [ready]}}, subresource="status")
            backup = await server.back_up()
            await cluster.settle(120)
            assert await ready_conditions(cluster) == ("Unknown", "False")
            await server.restore(backup)
            assert await ready_conditions(cluster) == ("True", "True")
            await cluster.settle(120)
            assert await ready_conditions(cluster) == ("Unknown", "False")

    run_virtual(main())


def test_a_problem_that_a_backup_does_not_have_is_reported_again() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("jobs",)) as (cluster, server):
            await cluster.kill()
            await cluster.create(quota("none", {"count/pods": "0"}), job("j", completions=1))
            backup = await server.back_up()
            cluster.start()
            await cluster.settle(300)
            before = await cluster.client.list(Event, fields="involvedObject.name=j")
            await server.restore(backup)
            assert await cluster.client.list(Event) == ()
            await cluster.settle(300)
            after = await cluster.client.list(Event, fields="involvedObject.name=j")
            assert [event.reason for event in after] == [event.reason for event in before] == ["FailedCreate"]

    run_virtual(main())


async def ready_conditions(cluster: ControlledCluster) -> tuple[str, str]:
    """Of the node and of its pod."""
    node, of_pod = (await cluster.client.get(Node, "node-a")).status, (await cluster.pod("p")).status
    (of_node,) = (each.status for each in node.conditions if each.type == "Ready")
    return of_node, next(each.status for each in of_pod.conditions if each.type == "Ready")
