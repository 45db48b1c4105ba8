"""What the scheduler watches: each change goes into the cluster state, the resulting cluster events to `report`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for, resource_read_as
from dralloc.client.reflector import PAGE_SIZE, RECONNECT, Reflector, log_problem
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import Object, TypedResource
from dralloc.kube.core_v1 import Namespace, Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.policy_v1 import GROUP as POLICY
from dralloc.kube.policy_v1 import PodDisruptionBudget
from dralloc.kube.registry import DEVICE_TAINT_RULE
from dralloc.kube.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.storage_v1 import GROUP as STORAGE
from dralloc.kube.storage_v1 import CSINode
from dralloc.kube.volumes_v1 import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.watch_progress import WatchProgress

# How often a server that does not serve a resource is asked again.
UPGRADE_POLL_S: Final = 30.0


class Watches:
    def __init__(
        self, calls: ApiCalls, cluster: ClusterState, report: Callable[[Collection[ClusterEvent]], None]
    ) -> None:
        self._calls = calls
        self._cluster = cluster
        self._report = report
        self._informers: list[Informer[Any]] = []
        self.pods: Informer[Pod] = Informer()
        self.slices: Informer[ResourceSlice] = Informer({"driver": lambda item: (item.spec.driver,)})
        self.progress = WatchProgress()

    async def start(self, tasks: asyncio.TaskGroup, gates: FeatureGates) -> None:
        """Starts the watches; returns when every informer has its first list."""
        cluster = self._cluster
        self._follow(tasks, resource_for(Node), Informer(), cluster.node_changed)
        self._follow(tasks, resource_for(Namespace), Informer(), cluster.namespace_changed)
        self._follow(tasks, resource_for(DeviceClass), Informer(), cluster.class_changed)
        self._follow(tasks, resource_for(ResourceSlice), self.slices, cluster.slice_changed)
        if "DRADeviceTaintRules" in gates:
            versions = [
                replace(resource_for(DeviceTaintRule), version=each.version) for each in DEVICE_TAINT_RULE.versions
            ]
            await self._follow_if_served(tasks, versions, cluster.rule_changed)
        if "DRAPreemption" in gates:
            self._follow(tasks, resource_read_as(PodDisruptionBudget, POLICY), Informer(), cluster.budgets.changed)
        if "GenericWorkload" in gates:
            await self._follow_if_served(tasks, [resource_for(PodGroup)], cluster.group_changed)
        self._follow_volumes(tasks)
        claims: Informer[ResourceClaim] = Informer()
        claims.subscribe_to_lists(lambda revision: self._report(cluster.claims.listed(claims.all(), revision)))
        self._follow(tasks, resource_for(ResourceClaim), claims, self._claim_changed)
        self._follow(tasks, resource_for(Pod), self.pods, cluster.pod_changed)
        for informer in self._informers:
            await informer.synced.wait()

    def _follow_volumes(self, tasks: asyncio.TaskGroup) -> None:
        volumes = self._cluster.volumes
        self._follow(tasks, resource_read_as(PersistentVolume), Informer(), volumes.volume_changed)
        self._follow(tasks, resource_read_as(PersistentVolumeClaim), Informer(), volumes.claim_changed)
        self._follow(tasks, resource_read_as(StorageClass, STORAGE), Informer(), volumes.class_changed)
        self._follow(tasks, resource_for(CSINode), Informer(), volumes.csi_node_changed)
        self._follow(tasks, resource_read_as(CSIDriver, STORAGE), Informer(), volumes.driver_changed)
        self._follow(tasks, resource_read_as(CSIStorageCapacity, STORAGE), Informer(), volumes.capacity_changed)
        self._follow(tasks, resource_read_as(VolumeAttachment, STORAGE), Informer(), volumes.attachment_changed)

    async def see_claims(self) -> None:
        """Returns when the state has every claim as it was stored before the call, or newer; deletions may be missing."""
        claims, _ = await self._calls.list_all(resource_for(ResourceClaim), page_size=PAGE_SIZE)
        await self.progress.reach(max((int(claim.metadata.resource_version) for claim in claims), default=0))

    def _follow(
        self,
        tasks: asyncio.TaskGroup,
        resource: TypedResource[Object],
        informer: Informer[Object],
        handle: Callable[[Object | None, Object | None], Collection[ClusterEvent]],
    ) -> None:
        informer.subscribe(lambda before, after: self._report(handle(before, after)))
        self._informers.append(informer)
        on_problem = partial(log_problem, resource)
        tasks.create_task(Reflector(self._calls, resource, informer, on_problem=on_problem).run())

    async def _follow_if_served(
        self,
        tasks: asyncio.TaskGroup,
        versions: Sequence[TypedResource[Object]],
        handle: Callable[[Object | None, Object | None], Collection[ClusterEvent]],
    ) -> None:
        """Follows the newest version that the server has. One that serves none may do so later, after an upgrade."""
        served = await self._served(versions)
        if served is not None:
            self._follow(tasks, served, Informer(), handle)
            return

        async def follow_later() -> None:
            while (found := await self._served(versions)) is None:
                await asyncio.sleep(UPGRADE_POLL_S)
            self._follow(tasks, found, Informer(), handle)

        tasks.create_task(follow_later())

    async def _served(self, versions: Sequence[TypedResource[Object]]) -> TypedResource[Object] | None:
        for resource in versions:
            if await self._is_served(resource):
                return resource
        return None

    async def _is_served(self, resource: TypedResource[Any]) -> bool:
        """Retries until the server answers."""
        for failures in count(1):
            try:
                await self._calls.page(resource, query={"limit": "1"})
            except NotFound:
                return False
            except (ApiError, TransportError) as error:
                log_problem(resource, error)
                await asyncio.sleep(RECONNECT.delay_s(failures))
            else:
                break
        return True

    def _claim_changed(self, before: ResourceClaim | None, after: ResourceClaim | None) -> Collection[ClusterEvent]:
        events = self._cluster.claim_changed(before, after)
        if after is not None:
            self.progress.advance(after.metadata.resource_version)
        return events
