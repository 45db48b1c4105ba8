"""What must hold in an idle cluster: nothing is left over. `safety_checker` has what must hold at every revision."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.kube import resource_v1
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_claims import claims_of, group_name, is_held_by_workload, is_pod
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1beta1 import PodGroup

# Longer than every backoff, and much shorter than the flush of unschedulable pods.
SOON_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObjects:
    """The objects of one revision that the checkers need."""

    nodes: tuple[Node, ...] = ()
    slices: tuple[resource_v1.ResourceSlice, ...] = ()
    classes: tuple[resource_v1.DeviceClass, ...] = ()
    rules: tuple[resource_v1.DeviceTaintRule, ...] = ()
    claims: tuple[resource_v1.ResourceClaim, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()
    groups: tuple[PodGroup, ...] = ()


async def lasting(look: Callable[[], Iterable[str]]) -> list[str]:
    """What is wrong now and still is after a while.

    Pods end at any time, and others get their devices: at each single moment, a pod may have been bound that is not running yet.
    """
    wrong = list(look())
    if not wrong:
        return []
    await asyncio.sleep(SOON_S)
    still = set(look())
    return [each for each in wrong if each in still]


def leaks(objects: StoredObjects) -> Iterator[str]:
    """A message for each leftover in an idle cluster."""
    uids = {pod.metadata.uid for pod in objects.pods if not pod.is_finished}
    jobs = {job.metadata.uid for job in objects.jobs if not job.is_finished}
    groups = {group.metadata.uid for group in objects.groups}
    # Pods of a workload use claims without being listed.
    running = [pod for pod in objects.pods if pod.spec.node_name and not pod.is_finished]
    used = {ObjectKey(pod.metadata.namespace, use.claim) for pod in running for use in claims_of(pod)}
    waiting = [pod for pod in objects.pods if not pod.spec.node_name]
    awaited = {ObjectKey(pod.metadata.namespace, use.claim) for pod in waiting for use in claims_of(pod)}
    for claim in objects.claims:
        is_used = key_of(claim) in used
        name = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
        for reference in claim.status.reserved_for:
            if is_pod(reference) and reference.uid not in uids:
                yield f"{name} is reserved for pod {reference.name}, which is deleted or finished"
            if reference.resource == "jobs" and reference.uid not in jobs and not is_used:
                yield f"{name} is reserved for job {reference.name}, which is deleted or finished"
            if reference.resource == "podgroups" and reference.uid not in groups and not is_used:
                yield f"{name} is reserved for PodGroup {reference.name}, which is deleted"
        # Pods that wait for the end of a claim do not keep it.
        is_held = (
            is_used or (bool(claim.status.reserved_for) and key_of(claim) not in awaited) or is_held_by_workload(claim)
        )
        if claim.metadata.deletion_timestamp is not None and not is_held:
            yield f"{name} is deleted, unused, and still exists"
        owner = next((owner for owner in claim.metadata.owner_references if owner.controller), None)
        if owner is not None and owner.kind == "Pod" and owner.uid not in uids:
            yield f"{name} belongs to pod {owner.name}, which is deleted or finished"
        if owner is not None and owner.kind == "PodGroup" and owner.uid not in groups and not is_used:
            yield f"{name} belongs to PodGroup {owner.name}, which is deleted"
    yield from _protected_groups(objects)


def _protected_groups(objects: StoredObjects) -> Iterator[str]:
    """Deleted groups without members that still run or wait."""
    members = {(pod.metadata.namespace, group_name(pod)) for pod in objects.pods if not pod.is_finished}
    for group in objects.groups:
        meta = group.metadata
        if meta.deletion_timestamp is not None and (meta.namespace, meta.name) not in members:
            yield f"PodGroup {meta.name} is deleted, has no members, and still exists"
