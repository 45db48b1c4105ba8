"""A cluster whose scheduler and controllers have the roles of `deploy/` and no others, and scenarios in which they use every right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for, resource_read_as
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.controller_set import ControllerSet
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Event, Node
from dralloc.kube.meta_v1 import OwnerReference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import (
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    OpaqueDeviceConfiguration,
    ResourceClaim,
)
from dralloc.kube.resource_v1alpha3 import ResourcePoolStatusRequest
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.volume_claims import SELECTED_NODE
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim
from dralloc.node.simulated.fleet import Fleet, FleetSettings
from dralloc.node.simulated.profiles import load_profile
from dralloc.node.simulated_runtime import PREFIX
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.leader_loop import SchedulerLoop
from dralloc.scheduler.ownership.lease_rules import PoolLeaseSettings
from dralloc.scheduler.settings import NAME, SchedulerSettings
from dralloc.testing.builders import allocation, claim, held, request, resource_slice, taint_rule
from dralloc.testing.components import Components
from dralloc.testing.virtual_time import VirtualClock
from tests.support.api_server import TOKEN
from tests.support.deployed_roles import CONTROLLERS, SCHEDULER, granted, manifests
from tests.support.extensions import LaterRelease
from tests.support.node_cluster import replace_uid
from tests.support.rights import (
    GuardedApplication,
    guarded_server,
)
from tests.support.scripted_transport import LosesFirstAnswers, ScriptedTransport
from tests.support.volumes import storage_class, using, volume, volume_claim
from tests.support.workloads import claim_template, existing, job, pod, pod_group, quota, template

VOLUMES, VOLUME_CLAIMS = resource_read_as(PersistentVolume), resource_read_as(PersistentVolumeClaim)
GPU = "gpu.example.com"
GROUPS = "GenericWorkload=true,DRAWorkloadResourceClaims=true,WorkloadWithJob=true"


@dataclass
class World:
    """A cluster whose components are restricted to their roles."""

    application: GuardedApplication
    clock: VirtualClock

    @property
    def client(self) -> AsyncClient:
        return AsyncClient(InProcessTransport(self.application, token=TOKEN))

    def transport_of(self, user: str) -> Transport:
        return ScriptedTransport(InProcessTransport(self.application, token=user), LosesFirstAnswers())

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Waits, in virtual time, until the condition holds."""
        for _ in range(1000):
            if await holds():
                return
            await asyncio.sleep(1)
        raise AssertionError(f"not so: {what}")

    async def pod_in(self, name: str, phase: str) -> None:
        async def is_in() -> bool:
            return any(p.metadata.name == name and p.status.phase == phase for p in await self.client.list(Pod))

        await self.until(is_in, f"pod {name} is {phase}")

    async def until_all_is_used(self, user: str) -> None:
        async def is_used() -> bool:
            return self.application.used[user] == granted(user)

        try:
            await self.until(is_used, "all rights are used")
        except AssertionError:
            unused = granted(user) - self.application.used[user]
            pytest.fail(f"{user} does not need {sorted(unused)}")


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """A scheduler and controllers with their roles."""
    async with AsyncExitStack() as stack:
        clock = VirtualClock(asyncio.get_running_loop())
        roles = {user: manifests(user) for user in (SCHEDULER, CONTROLLERS)}
        gates = FeatureGates.parse(f"{GROUPS},DRAPreemption=true,DRAResourcePoolStatus=true")
        application = await stack.enter_async_context(guarded_server(clock, roles, gates, proves_need=True))
        made = World(application, clock)
        components = await stack.enter_async_context(Components())
        leases = PoolLeaseSettings(namespace="dralloc-system", identity="scheduler-1")
        settings = SchedulerSettings(names=frozenset({NAME}), gates=gates, pool_leases=leases)
        # The roles are for all servers: without our extensions, more writes are needed, and later releases get patches.
        of_scheduler, of_controllers = (LaterRelease(made.transport_of(user)) for user in (SCHEDULER, CONTROLLERS))
        scheduler = SchedulerLoop(of_scheduler, clock=clock, settings=settings)
        controllers = ControllerSet(of_controllers, clock=clock, gates=gates)
        fleet = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=2, prefix="node")
        ready = asyncio.Event()
        admin = InProcessTransport(made.application, token=TOKEN)
        components.start("nodes", lambda: Fleet(admin, fleet, clock).run(ready.set))
        components.start("scheduler", lambda: scheduler.run_elected("scheduler-1"))
        components.start("controllers", lambda: controllers.run_elected("controllers-1"))
        await components.guard(ready.wait())
        yield made


def gpu_pod(name: str, *sources: tuple[str, dict[str, Any]], runs_s: int = 100_000, **options: Any) -> dict[str, Any]:
    document = pod(name, dict(sources), **{"scheduler": NAME, **options})
    document["metadata"]["annotations"] = {f"{PREFIX}run-seconds": str(runs_s)}
    return document


async def shared_claims_and_templates(here: World) -> None:
    """Existing claims, claims from templates, pods that finish and pods without a scheduler."""
    create = here.client.create
    # With parameters, claims are replaced instead of patched.
    parameters = DeviceClaimConfiguration(
        opaque=OpaqueDeviceConfiguration(driver=GPU, parameters=msgspec.Raw(b'{"b": 1, "a": "<"}'))
    )
    await create(replace_uid(claim("mine", request(device_class=GPU), config=[parameters])))
    await create(claim_template("gpus", request(device_class=GPU)))
    await create(gpu_pod("user", ("gpu", existing("mine"))))
    await create(gpu_pod("short", ("gpu", template("gpus")), runs_s=10))
    await here.pod_in("user", "Running")
    await create(gpu_pod("other-user", ("gpu", existing("mine"))))
    await here.pod_in("other-user", "Running")
    await here.pod_in("short", "Succeeded")
    # Bound by hand to an allocated claim: the controller adds it to reservedFor.
    await create(gpu_pod("forced", ("gpu", existing("mine")), node="node-0"))

    async def is_listed() -> bool:
        found = await here.client.get(ResourceClaim, "mine")
        return "forced" in {each.name for each in found.status.reserved_for}

    await here.until(is_listed, "the pod without a scheduler is on the list of its claim")


async def extended_resources(here: World) -> None:
    """A pod asks for a device by the name of its class; the claim of an earlier attempt is deleted before it gets its own."""
    document = gpu_pod("extended", requests={f"deviceclass.resource.kubernetes.io/{GPU}": "1"})
    document["spec"]["schedulingGates"] = [{"name": "later"}]
    await here.client.create(document)
    found = await here.client.get(Pod, "extended")
    left = replace_uid(claim("left-over", request(device_class=GPU)))
    owner = OwnerReference(api_version="v1", kind="Pod", name="extended", uid=found.metadata.uid, controller=True)
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    metadata = msgspec.structs.replace(left.metadata, annotations=annotations, owner_references=(owner,))
    await here.client.create(msgspec.structs.replace(left, metadata=metadata))
    # The scheduler sees the claim before the pod.
    await asyncio.sleep(5)
    await here.client.patch(Pod, "extended", {"spec": {"schedulingGates": None}})
    await here.pod_in("extended", "Running")


async def pool_status(here: World) -> None:
    """A request for the status of pools is answered; one that was answered more than an hour ago is deleted."""
    kind = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest"}
    # A pool that is incomplete is not answered at once.
    await here.client.create(resource_slice("slow", driver="slow.example.com", of=2))
    for name, driver in (("free", GPU), ("old", "slow.example.com")):
        await here.client.create({**kind, "metadata": {"name": name}, "spec": {"driver": driver}})
    condition = {"type": "Complete", "status": "True", "reason": "Old", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    status = {"poolCount": 0, "conditions": [condition]}
    await here.client.patch(ResourcePoolStatusRequest, "old", {"status": status}, subresource="status")

    async def is_answered() -> bool:
        found = await here.client.list(ResourcePoolStatusRequest)
        return [(each.metadata.name, each.status is not None) for each in found] == [("free", True)]

    await here.until(is_answered, "one request is answered, the other deleted")


async def waiting_in_vain(here: World) -> None:
    """A pod that is pending for one reason, for another, and for the first again: a repeated event is counted."""
    create = here.client.create
    await create(replace_uid(claim("none", request(device_class="rare"))))
    await create(gpu_pod("waits", ("gpu", existing("none"))))

    async def reason() -> str:
        found = await here.client.get(Pod, "waits")
        return "; ".join(condition.message for condition in found.status.conditions)

    async def changes(before: str) -> str:
        async def has_changed() -> bool:
            return await reason() != before

        await here.until(has_changed, "the pod waits for another reason")
        return await reason()

    rare: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "rare"},
        "spec": {"selectors": [{"cel": {"expression": "false"}}]},
    }
    without = await changes("")
    for _ in range(2):
        await create(rare)
        within = await changes(without)
        await here.client.delete(DeviceClass, "rare")
        assert await changes(within) == without


async def volumes(here: World) -> None:
    """A volume is chosen for the claim of a pod, and another claim gets the node that its volume is to be made for."""
    create = here.client.create
    made = (storage_class(), volume("disk"), volume_claim("chosen"))
    new = (storage_class("remote", "d.io"), volume_claim("made", storage_class="remote"))
    at_once = (volume("plain", storage_class=""), volume_claim("plain", storage_class=""))
    for document in (*made, *new, *at_once):
        await create(document)
    scratch = gpu_pod("with-scratch")
    scratch["spec"]["volumes"] = [
        {"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": volume_claim("s")["spec"]}}}
    ]
    await create(scratch)
    await create(using(gpu_pod("with-disk"), "chosen", "made"))

    async def is_chosen() -> bool:
        calls = ApiCalls(InProcessTransport(here.application, token=TOKEN))
        disk = await calls.get(VOLUMES, ObjectKey("", "disk"))
        claim = await calls.get(VOLUME_CLAIMS, ObjectKey("default", "made"))
        return disk.spec.claim_ref is not None and SELECTED_NODE in claim.metadata.annotations

    await here.until(is_chosen, "volumes are chosen")


async def evictions(here: World) -> None:
    """Devices of running pods get a taint. One pod is evicted at once, another tolerates it long enough to stay, and
    again.
    """
    create = here.client.create
    patient = request(device_class=GPU, tolerations=[DeviceToleration(operator="Exists", toleration_seconds=600)])
    await create(replace_uid(claim("borne", patient)))
    await create(gpu_pod("bears", ("gpu", existing("borne"))))
    await here.pod_in("bears", "Running")
    taint = DeviceTaint(key="broken", effect="NoExecute")

    async def break_device(of: str) -> None:
        found = await here.client.get(ResourceClaim, of)
        assert found.status.allocation is not None
        (result,) = found.status.allocation.devices.results
        await create(taint_rule(of, taint, driver=result.driver, pool=result.pool, device=result.device))

    async def is_gone() -> bool:
        return "user" not in {each.metadata.name for each in await here.client.list(Pod)}

    async def is_pending() -> bool:
        conditions = (await here.client.get(DeviceTaintRule, "borne")).status.conditions
        return any(each.reason == "PodsPendingEviction" for each in conditions or ())

    async def is_called_off() -> bool:
        found = await here.client.list(Event)
        return any(each.involved_object.name == "bears" and each.message == "Cancelling deletion" for each in found)

    await break_device("mine")
    await here.until(is_gone, "the pod is evicted")
    for _ in range(2):
        await break_device("borne")
        await here.until(is_pending, "an eviction is awaited")
        await here.client.delete(DeviceTaintRule, "borne")
        await here.until(is_called_off, "it is called off")


async def jobs(here: World) -> None:
    """Jobs that finish and are deleted, that scale down, and that share one claim which outlives them for a moment."""
    create = here.client.create
    specs: dict[str, dict[str, Any]] = {
        "done": {"ttlSecondsAfterFinished": 5},
        "shrinks": {"parallelism": 2},
        "shares": {},
    }
    for name, spec in specs.items():
        claims = {"gpu": existing("shared")} if name == "shares" else {}
        annotations = {"dralloc.io/shared-claims": "shared=gpus"} if name == "shares" else {}
        document = job(name, claims, annotations=annotations, **spec)
        runs_s = "5" if name == "done" else "100000"
        document["spec"]["template"]["metadata"] = {"annotations": {f"{PREFIX}run-seconds": runs_s}}
        document["spec"]["template"]["spec"]["schedulerName"] = NAME
        await create(document)

    async def pods_of(name: str) -> int:
        found = await here.client.list(Pod, labels=f"job-name={name}")
        return len([each for each in found if each.status.phase == "Running"])

    async def are_running() -> bool:
        return await pods_of("shrinks") == 2 and await pods_of("shares") == 1

    await here.until(are_running, "the pods of the jobs run")
    await here.client.patch(Job, "shrinks", {"spec": {"parallelism": 1}})
    await here.client.delete(Job, "shares")


async def silent_nodes(here: World) -> None:
    """A node falls silent, and is deleted at last; its pod goes with it."""
    ready = {"type": "Ready", "status": "True"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "silent"}, "status": {"conditions": [ready]}}
    await here.client.create(node)
    await here.client.create(gpu_pod("left", node="silent"))

    async def is_evicting() -> bool:
        return any(each.effect == "NoExecute" for each in (await here.client.get(Node, "silent")).spec.taints)

    async def is_gone() -> bool:
        return "left" not in {each.metadata.name for each in await here.client.list(Pod)}

    await here.until(is_evicting, "the silent node evicts its pods")
    await here.client.delete(Node, "silent")
    await here.until(is_gone, "the pod of the deleted node is gone")


async def groups(here: World) -> None:
    """A group with a claim, which outlives its pods."""
    shared = ("shared", template("gpus"))
    await here.client.create(pod_group("group", dict([shared])))
    await here.client.create(gpu_pod("member", shared, group="group", node="node-1", scheduler="none"))

    async def has_claim() -> bool:
        return bool((await here.client.get(Pod, "member")).status.resource_claim_statuses)

    async def is_gone() -> bool:
        return "group" not in {each.metadata.name for each in await here.client.list(PodGroup)}

    await here.until(has_claim, "the member has the claim of its group")
    await here.client.create(job("gang", parallelism=2, scheduling={"schedulingPolicy": {"gang": {}}}))

    async def has_size(count: int) -> bool:
        return count in {each.min_count for each in await here.client.list(PodGroup) if each.is_gang}

    await here.until(lambda: has_size(2), "the job is a gang of two")
    await here.client.patch(Job, "gang", {"spec": {"parallelism": 1}})
    await here.until(lambda: has_size(1), "the gang has one pod")
    await here.client.create(pod_group("plain"))
    await here.client.create(gpu_pod("scheduled", group="plain"))
    await here.pod_in("scheduled", "Running")
    await here.client.calls.delete(resource_for(Pod), ObjectKey("default", "scheduled"), grace_period_s=0)
    await here.client.delete(PodGroup, "plain")
    await here.client.calls.delete(resource_for(Pod), ObjectKey("default", "member"), grace_period_s=0)
    await here.client.delete(PodGroup, "group")
    await here.until(is_gone, "the group is gone")
    # A consumer that no informer ever showed: the server is asked.
    await here.client.create(replace_uid(claim("kept", request(device_class=GPU))))
    unknown = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "group", "uid": "gone"}]
    status = {"allocation": allocation(held("unknown-device")), "reservedFor": unknown}
    await here.client.patch(ResourceClaim, "kept", {"status": status}, subresource="status")

    async def is_released() -> bool:
        return not (await here.client.get(ResourceClaim, "kept")).status.reserved_for

    await here.until(is_released, "the reservation for the unknown group is gone")


async def preemption(here: World) -> None:
    """A pod takes the host port of a pod with lower priority, whose eviction a budget would rather not have."""
    create = here.client.create
    budget = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "weak"}}}
    await create(
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"}, "spec": budget}
    )
    for value, name in enumerate(("weak", "strong")):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await create({**kind, "metadata": {"name": name}, "value": value})
        document = gpu_pod(name, labels={"app": name})
        document["spec"] |= {"priorityClassName": name, "nodeSelector": {"kubernetes.io/hostname": "node-0"}}
        document["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        await create(document)
        await here.pod_in(name, "Running")


async def everything(here: World) -> None:
    """All scenarios together need all rights of the scheduler and of the controllers."""
    await here.client.create(quota("limit", {"count/pods": "100"}))
    await waiting_in_vain(here)
    await volumes(here)
    await shared_claims_and_templates(here)
    await extended_resources(here)
    await pool_status(here)
    await jobs(here)
    await evictions(here)
    await silent_nodes(here)
    await groups(here)
    await preemption(here)
