"""What a node agent finds and keeps when it starts again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dralloc.client.api_calls import PatchType
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import FAILED, Pod
from dralloc.node.checkpoint import DirectoryInUse
from dralloc.node.kubelet.checkpoint_file import BadCheckpoint
from dralloc.testing.builders import allocation, held
from tests.node.agent_scenario import describe_devices, exit_codes, is_alive, play, printed, script
from tests.support.node_cluster import QUICK, NodeCluster
from tests.support.scripted_driver import ScriptedDriver

pytestmark = pytest.mark.slow


def test_a_restarted_agent_adopts_its_containers_and_keeps_its_claims() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        describe_devices(world, kept=[], dropped=[])
        await world.create_claim("kept", allocation(held("gpu-0")))
        await world.create_claim("dropped", allocation(held("gpu-1")))
        await world.run_pod("kept", "kept", command=script("echo $$$$; exec sleep 1000"))
        await world.run_pod("dropped", "dropped", command=script("echo $$$$; exec sleep 1000"))
        pids = [int(await printed(world, name)) for name in ("kept", "dropped")]
        await world.stop_agent()
        await world.start_deletion("dropped", grace_s=0)
        await world.start_agent()
        await driver.until(lambda: len(driver.prepared) == 1)
        await world.eventually(lambda: not is_alive(pids[1]))
        assert is_alive(pids[0])
        assert (await world.pod_in("Running", "kept")).status.container_statuses[0].restart_count == 0
        await world.start_deletion("kept", grace_s=2)
        await world.until_gone("kept")
        assert driver.prepared == set()

    play(scenario, keeps_containers=True)


def test_containers_of_a_pod_that_was_marked_as_failed_meanwhile_end() -> None:
    """A controller marks the pods of a node that it believes to be gone, and may be killed before it deletes them."""

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await world.run_pod("p", command=script("echo $$$$; exec sleep 1000"))
        pid = int(await printed(world, "p"))
        await world.stop_agent()
        assert is_alive(pid)
        await world.end_pod("p", FAILED)
        await world.start_agent()
        await world.eventually(lambda: not is_alive(pid))

    play(scenario, keeps_containers=True)


def test_a_node_is_not_ready_while_its_agent_does_not_run() -> None:
    """Otherwise pods would be scheduled to it that never run."""

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        before = await world.client.get(Node, "node-a")
        await world.stop_agent()
        ended = await world.client.get(Node, "node-a")
        (condition,) = ended.status.conditions
        assert (condition.status, condition.reason) == ("False", "KubeletNotReady")
        assert condition.message == "the node agent has ended"
        assert [(taint.key, taint.effect) for taint in ended.spec.taints] == [
            ("node.kubernetes.io/not-ready", "NoSchedule")
        ]
        assert ended.status.capacity == before.status.capacity
        await world.start_agent()
        back = await world.client.get(Node, "node-a")
        assert ([each.status for each in back.status.conditions], back.spec.taints) == (["True"], ())

    play(scenario)


def test_a_node_that_was_believed_to_be_gone_contradicts() -> None:
    """A controller marked the node and its pods, for example because leases reached it late."""

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await world.run_pod("pod", command=["sleep", "1000"])
        await world.pod_where("pod", is_ready)
        unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        key, strategic = ObjectKey("default", "pod"), PatchType.STRATEGIC
        await world.client.calls.patch(resource_for(Pod), key, unready, type=strategic, subresource="status")
        unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        await world.client.patch(Node, "node-a", unknown, subresource="status")
        await world.until(Node, "node-a", lambda node: node is not None and node.status.conditions[0].status == "True")
        await world.pod_where("pod", is_ready)

    play(scenario)


def is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def test_claims_of_deleted_pods_are_unprepared_when_their_driver_registers() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        describe_devices(world, claim=[])
        await world.create_claim("claim")
        await world.run_pod("pod", "claim", command=["sleep", "1000"])
        await world.pod_in("Running")
        await world.stop_agent()
        await world.start_deletion("pod", grace_s=0)
        await driver.stop()
        await world.start_agent()
        await driver.start()
        await driver.until(lambda: not driver.prepared)

    play(scenario, timings=replace(QUICK, reconcile_s=1000.0))


def test_a_container_that_ended_without_an_agent_restarts_by_its_policy() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await world.run_pod("pod", command=["sleep", "1000"], spec={"restartPolicy": "Always"})
        await world.run_pod("once", command=["sleep", "1000"])
        for name in ("pod", "once"):
            await world.pod_in("Running", name)
        await world.stop_agent()
        await world.start_agent()
        pod = await world.pod_where(
            "pod",
            lambda pod: any(status.ready and status.restart_count == 1 for status in pod.status.container_statuses),
        )
        last = pod.status.container_statuses[0].last_state.terminated
        assert last is not None
        assert last.reason == "ContainerStatusUnknown"
        assert exit_codes(await world.pod_in("Failed", "once")) == [137]

    play(scenario)


def test_a_directory_that_is_damaged_or_in_use_is_refused_by_name() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        with pytest.raises(DirectoryInUse, match=str(world.directory)):
            await world.start_agent()
        await world.stop_agent()
        state = world.directory / "dra_manager_state"
        state.write_text("{}")
        with pytest.raises(BadCheckpoint, match="dra_manager_state"):
            await world.start_agent()
        state.unlink()
        await world.start_agent()

    play(scenario)
