"""A whole node with real processes: pods from binding to deletion."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from dralloc.kube.codec import encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.node.checkpoint import read_checkpoint
from dralloc.node.pod_view import NodePod
from dralloc.primitives.metrics import exposition
from dralloc.rpc.plugin_services import NODE_PREPARE_RESOURCES, NODE_UNPREPARE_RESOURCES
from dralloc.testing.builders import allocation, claim, device, held, request, resource_slice
from tests.node.agent_scenario import describe_devices, exit_codes, is_alive, output, play, printed, script
from tests.support.node_cluster import QUICK, NodeCluster, node_cluster, replace_uid, short_directory
from tests.support.scripted_driver import ScriptedDriver

pytestmark = pytest.mark.slow


def test_a_pod_gets_its_devices_and_its_claim_is_unprepared_when_it_is_deleted() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        describe_devices(world, claim=["GPU_ID=7"])
        await world.create_claim("claim")
        env = [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        command = script('echo "$WHO has gpu $GPU_ID"; exec sleep 1000')
        await world.run_pod("pod", "claim", command=command, env=env)
        pod = await world.pod_in("Running")
        assert read_checkpoint(world.directory / "dra_manager_state")[0].pods == {pod.metadata.uid}
        assert len(driver.prepared) == 1
        await world.start_deletion("pod", grace_s=5)
        await world.until_gone()
        assert driver.prepared == set()
        assert read_checkpoint(world.directory / "dra_manager_state") == ()
        await world.eventually(lambda: not (world.directory / "pods" / pod.metadata.uid).exists())
        assert [call.method for call in driver.calls] == [NODE_PREPARE_RESOURCES, NODE_UNPREPARE_RESOURCES]
        assert world.agent is not None
        shown = exposition(world.agent.metrics.all())
        assert 'dra_resource_claims_in_use{driver_name="<any>"} 0' in shown
        path = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
        assert f'method_name="{path}",grpc_status_code="OK"}} 1' in shown

    play(scenario)


def test_the_claim_of_a_completed_pod_is_unprepared_and_the_pod_remains() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        describe_devices(world, claim=["GPU_ID=7"])
        await world.create_claim("claim")
        await world.run_pod("pod", "claim", command=script('echo "gpu $GPU_ID"; exit 3'))
        pod = await world.pod_in("Failed")
        assert exit_codes(pod) == [3]
        assert output(world, pod) == "gpu 7\n"
        assert driver.prepared == set()
        await world.start_deletion("pod")
        await world.until_gone()

    play(scenario)


def test_each_container_sees_only_the_devices_that_it_names() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        describe_devices(world, a=["A=1"], b=["B=1"])
        driver.devices = lambda claim: [
            {
                "request_names": [name],
                "pool_name": "p",
                "device_name": name,
                "cdi_device_ids": [f"example.com/gpu={name}"],
            }
            for name in ("a", "b")
        ]
        await world.create_claim("claim")
        show = script("env | grep -E '^(A|B)=' | sort | tr '\\n' ' '")
        containers = [
            {"name": "both", "image": "i", "command": show, "resources": {"claims": [{"name": "claim"}]}},
            {
                "name": "one",
                "image": "i",
                "command": show,
                "resources": {"claims": [{"name": "claim", "request": "b"}]},
            },
            {"name": "none", "image": "i", "command": [*show[:2], f"{show[2]}; true"]},
        ]
        init = [{"name": "init", "image": "i", "command": show, "resources": {"claims": [{"name": "claim"}]}}]
        await world.run_pod("pod", "claim", spec={"containers": containers, "initContainers": init})
        pod = await world.pod_in("Succeeded")
        seen = {name: output(world, pod, name) for name in ("both", "one", "none", "init")}
        assert seen == {"both": "A=1 B=1 ", "one": "B=1 ", "none": "", "init": "A=1 B=1 "}

    play(scenario)


def test_an_exited_container_restarts_and_is_counted() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        command = script("test -e there && exec sleep 1000; touch there; exit 1")
        await world.run_pod("pod", command=command, spec={"restartPolicy": "OnFailure"})
        pod = await world.pod_where(
            "pod",
            lambda pod: any(status.ready and status.restart_count == 1 for status in pod.status.container_statuses),
        )
        last = pod.status.container_statuses[0].last_state.terminated
        assert last is not None
        assert last.exit_code == 1

    play(scenario)


def test_a_container_that_ignores_sigterm_is_killed_with_its_children_after_the_grace_period() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await world.run_pod("pod", command=script("trap '' TERM; sleep 1000 & echo $!; wait; wait"))
        child = int(await printed(world, "pod"))
        await world.start_deletion("pod", grace_s=1)
        await world.until_gone()
        await world.eventually(lambda: not is_alive(child))

    play(scenario)


@pytest.mark.parametrize(
    ("container", "reason", "text"),
    [
        ({"command": []}, "CreateContainerConfigError", "must set its command"),
        ({"command": ["/no/such/program"]}, "RunContainerError", "cannot run /no/such/program: No such file"),
        (
            {"command": ["true"], "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
            "CreateContainerConfigError",
            "not configMapKeyRef",
        ),
    ],
    ids=["no command", "no program", "no config map"],
)
def test_the_status_of_a_container_that_cannot_start_has_the_reason(
    container: dict[str, Any], reason: str, text: str
) -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await world.run_pod("pod", **container)

        def waits(pod: NodePod) -> bool:
            states = [status.state.waiting for status in pod.status.container_statuses]
            return any(state is not None and state.reason == reason and text in state.message for state in states)

        assert (await world.pod_where("pod", waits)).status.phase == "Pending"
        await world.event_where(lambda event: event.reason == "Failed" and text in event.message)
        await world.start_deletion("pod")
        await world.until_gone()
        assert world.agent is not None
        assert f'kubelet_started_containers_errors_total{{container_type="container",code="{reason}"}}' in exposition(
            world.agent.metrics.all()
        )

    play(scenario)


def test_devices_without_a_cdi_file_are_named() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await world.create_claim("claim")
        await world.run_pod("pod", "claim", command=["true"])
        await world.event_where(lambda event: "describes device example.com/gpu=claim" in event.message)
        describe_devices(world, claim=[])
        await world.pod_in("Succeeded")

    play(scenario)


def test_a_pod_ends_at_its_active_deadline() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        spec = {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1}
        await world.run_pod("pod", command=["sleep", "1000"], spec=spec)
        pod = await world.pod_in("Failed")
        assert pod.status.reason == "DeadlineExceeded"

    play(scenario)


def test_a_sidecar_stops_after_the_other_containers() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        side = {"name": "side", "image": "i", "restartPolicy": "Always", "command": ["sleep", "1000"]}
        await world.run_pod(
            "pod", command=["true"], spec={"initContainers": [side], "terminationGracePeriodSeconds": 2}
        )
        pod = await world.pod_in("Succeeded")
        ended = pod.status.init_container_statuses[0].state.terminated
        assert ended is not None
        assert ended.exit_code == 143

    play(scenario)


def test_a_pod_bound_by_hand_waits_until_its_claims_can_be_prepared() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await world.create_claim("claim")
        pod = await world.create_pod("pod", "claim", command=["true"])
        await world.bind("pod")
        await world.event_where(lambda event: "is not allowed to use ResourceClaim claim" in event.message)
        assert not driver.calls
        describe_devices(world, claim=[])
        await world.reserve("claim", pod)
        await world.pod_in("Succeeded")

    play(scenario)


def test_a_new_claim_of_the_same_name_waits_until_that_of_a_force_deleted_pod_is_unprepared() -> None:
    async def fails(service: Any, request: Any, context: Any) -> Any:
        raise RuntimeError("busy")

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        describe_devices(world, claim=[])
        driver.on_unprepare = fails
        await world.create_claim("claim")
        await world.run_pod("pod", "claim", command=["sleep", "1000"])
        await world.pod_in("Running")
        (first,) = driver.prepared
        await world.start_deletion("pod", grace_s=0)
        await world.until_gone()
        await world.allocate("claim", None)
        await world.client.delete(ResourceClaim, "claim")
        await world.create_claim("claim", allocation(held("gpu-1")))
        await world.run_pod("pod", "claim", command=["sleep", "1000"])
        await world.event_where(lambda event: "old ResourceClaim with same name claim" in event.message)
        driver.on_unprepare = None
        await world.pod_in("Running")
        assert first not in driver.prepared
        assert len(driver.prepared) == 1

    play(scenario)


# --- Slices and the node itself -----------------------------------------------------------------------------------


async def slices(world: NodeCluster) -> set[str]:
    return {item.metadata.name for item in await world.client.list(ResourceSlice)}


def test_only_the_slices_of_a_driver_that_stays_disconnected_are_deleted() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        published = [
            resource_slice("mine", device("gpu-0")),
            resource_slice("network", device("gpu-0"), pool="shared", all_nodes=True),
            resource_slice("elsewhere", device("gpu-0"), pool="p", node_name="node-b"),
            resource_slice("other-driver", device("gpu-0"), driver="nic.example.com"),
        ]
        for item in published:
            await world.client.create(item)
        await driver.stop()
        await world.until_gone("mine", ResourceSlice)
        assert await slices(world) == {"network", "elsewhere", "other-driver"}

    play(scenario)


def test_a_driver_that_reconnects_in_time_keeps_its_slices() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await world.client.create(resource_slice("mine", device("gpu-0")))
        await driver.stop()
        await driver.start()
        await driver.until(lambda: len(driver.registrations) == 2)
        other = ScriptedDriver(world.directory, name="other.example.com")
        await world.client.create(resource_slice("others", device("x"), driver="other.example.com", pool="q"))
        async with other:
            await other.until(lambda: bool(other.registrations))
        await world.until_gone("others", ResourceSlice)
        assert await slices(world) == {"mine"}

    # Much longer than the driver needs to reconnect.
    play(scenario, timings=replace(QUICK, slice_cleanup_delay_s=3.0))


def test_a_starting_node_deletes_its_old_slices() -> None:
    async def run() -> None:
        with short_directory() as directory:
            async with node_cluster(directory, starts_agent=False) as world:
                await world.client.create(resource_slice("mine", device("gpu-0")))
                await world.client.create(resource_slice("elsewhere", device("gpu-0"), pool="p", node_name="node-b"))
                await world.start_agent()
                await world.until_gone("mine", ResourceSlice)
                assert await slices(world) == {"elsewhere"}
                node = await world.client.get(Node, "node-a")
                assert [(condition.type, condition.status) for condition in node.status.conditions] == [
                    ("Ready", "True")
                ]

    asyncio.run(run())


# --- Sharing ------------------------------------------------------------------------------------------------------


def test_two_pods_on_one_device_each_see_their_own_share() -> None:
    shares = {
        "small": "11111111-1111-4111-8111-111111111111",
        "large": "22222222-2222-4222-8222-222222222222",
    }

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        describe_devices(world, small=["BANDWIDTH=1G"], large=["BANDWIDTH=9G"])
        driver.devices = lambda claim: [
            {
                "pool_name": "pool-a",
                "device_name": "eth1",
                "share_id": shares[claim.name],
                "cdi_device_ids": [f"example.com/gpu={claim.name}"],
            }
        ]
        for name, share in shares.items():
            await world.create_claim(name, allocation(held("eth1", share_id=share)))
            await world.run_pod(name, name, command=script("echo $BANDWIDTH"))
        outputs = {name: output(world, await world.pod_in("Succeeded", name)) for name in shares}
        assert outputs == {"small": "1G\n", "large": "9G\n"}
        assert {call.service for call in driver.calls} == {"v1.DRAPlugin"}
        assert driver.prepared == set()

    play(scenario)


def test_a_hundred_pods_of_a_workload_use_one_claim_that_lists_none_of_them() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        job = {"apiGroup": "batch", "resource": "jobs", "name": "job", "uid": "uid-of-job"}
        made = claim("claim", request("request"))
        document = json.loads(encode(replace_uid(made))) | {"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1"}
        document["spec"]["reservedFor"] = job
        document.pop("status", None)
        await world.client.create(document)
        result = json.loads(encode(allocation(held("gpu-0")))) | {"reservedForAnyPod": True}
        status = {"status": {"allocation": result, "reservedFor": [job]}}
        await world.client.patch(ResourceClaim, "claim", status, subresource="status")
        names = [f"pod-{number}" for number in range(100)]
        for name in names:
            await world.create_pod(name, "claim")
            await world.bind(name)
        for name in names:
            await world.pod_in("Running", name)
        assert len(driver.calls_of(NODE_PREPARE_RESOURCES)) == 1
        for name in names:
            await world.start_deletion(name)
        for name in names:
            await world.until_gone(name)
        assert len(driver.calls_of(NODE_UNPREPARE_RESOURCES)) == 1

    play(scenario, runs_processes=False)
