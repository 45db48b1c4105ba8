"""Safety checks: what must hold at every moment, and what must hold in an idle cluster.

Checkers see only the API's objects and share no code with the components that they check: sums are computed from the
claims each time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from dralloc.api import resource_v1
from dralloc.api.batch_v1 import Job
from dralloc.api.core_v1 import Node
from dralloc.api.pod_claims import claims_of, is_pod, is_reserved_for
from dralloc.api.pod_v1 import Pod

DeviceKey = tuple[str, str, str]


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


def violations(objects: StoredObjects) -> Iterator[str]:
    """A message for each rule that is violated at this moment."""
    yield from _allocated_twice(objects)
    yield from _capacity_exceeded(objects)
    yield from _counters_exceeded(objects)
    yield from _reserved_without_allocation(objects)
    yield from _running_without_devices(objects)


def leaks(objects: StoredObjects) -> Iterator[str]:
    """A message for each leftover in an idle cluster."""
    uids = {pod.metadata.uid for pod in objects.pods if not pod.is_finished}
    jobs = {job.metadata.uid for job in objects.jobs if not job.is_finished}
    # Pods of a workload use claims without being listed.
    used = {use.claim for pod in objects.pods if pod.spec.node_name and not pod.is_finished for use in claims_of(pod)}
    for claim in objects.claims:
        name = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
        for reference in claim.status.reserved_for:
            if is_pod(reference) and reference.uid not in uids:
                yield f"{name} is reserved for pod {reference.name}, which is deleted or finished"
            if reference.resource == "jobs" and reference.uid not in jobs:
                yield f"{name} is reserved for job {reference.name}, which is deleted or finished"
        is_unused = not claim.status.reserved_for and claim.metadata.name not in used
        if claim.metadata.deletion_timestamp is not None and is_unused:
            yield f"{name} is deleted, unused, and still exists"
        owner = next((owner for owner in claim.metadata.owner_references if owner.controller), None)
        if owner is not None and owner.kind == "Pod" and owner.uid not in uids:
            yield f"{name} belongs to pod {owner.name}, which is deleted or finished"


def _results(
    objects: StoredObjects,
) -> Iterator[tuple[resource_v1.ResourceClaim, resource_v1.DeviceRequestAllocationResult]]:
    for claim in objects.claims:
        if claim.status.allocation is not None:
            for result in claim.status.allocation.devices.results:
                if not result.admin_access:
                    yield claim, result


def _key(result: resource_v1.DeviceRequestAllocationResult) -> DeviceKey:
    return result.driver, result.pool, result.device


def _allocated_twice(objects: StoredObjects) -> Iterator[str]:
    whole: Counter[DeviceKey] = Counter()
    shares: Counter[tuple[DeviceKey, str]] = Counter()
    for _, result in _results(objects):
        if result.share_id is None:
            whole[_key(result)] += 1
        else:
            shares[_key(result), result.share_id] += 1
    for device, count in whole.items():
        if count > 1:
            yield f"device {'/'.join(device)} is allocated as a whole {count} times"
    for (device, share), count in shares.items():
        if count > 1:
            yield f"share {share} of device {'/'.join(device)} is allocated {count} times"


def _capacity_exceeded(objects: StoredObjects) -> Iterator[str]:
    consumed: dict[DeviceKey, Counter[str]] = defaultdict(Counter)
    for _, result in _results(objects):
        for name, amount in result.consumed_capacity.items():
            consumed[_key(result)][name] += amount.nanos
    devices = _devices(objects)
    for key, amounts in consumed.items():
        for name, nanos in amounts.items():
            capacity = devices[key].capacity.get(name) if key in devices else None
            if capacity is not None and nanos > capacity.value.nanos:
                yield f"{name} of device {'/'.join(key)}: {nanos} of {capacity.value.nanos} (nanos) is allocated"


def _counters_exceeded(objects: StoredObjects) -> Iterator[str]:
    """An allocated device consumes its counters once, no matter how many claims share it."""
    drawn: Counter[tuple[str, str, str, str]] = Counter()
    devices = _devices(objects)
    for driver, pool, name in {_key(result) for _, result in _results(objects)} & devices.keys():
        for consumption in devices[driver, pool, name].consumes_counters:
            for counter, amount in consumption.counters.items():
                drawn[driver, pool, consumption.counter_set, counter] += amount.value.nanos
    for item in objects.slices:
        for counter_set in item.spec.shared_counters or ():
            for counter, available in counter_set.counters.items():
                key = (item.spec.driver, item.spec.pool.name, counter_set.name, counter)
                if drawn[key] > available.value.nanos:
                    yield f"counter {'/'.join(key)}: {drawn[key]} of {available.value.nanos} (nanos) is consumed"


def _devices(objects: StoredObjects) -> dict[DeviceKey, resource_v1.Device]:
    generations: dict[tuple[str, str], int] = defaultdict(int)
    for item in objects.slices:
        pool = (item.spec.driver, item.spec.pool.name)
        generations[pool] = max(generations[pool], item.spec.pool.generation)
    return {
        (item.spec.driver, item.spec.pool.name, device.name): device
        for item in objects.slices
        if item.spec.pool.generation == generations[item.spec.driver, item.spec.pool.name]
        for device in item.spec.devices or ()
    }


def _reserved_without_allocation(objects: StoredObjects) -> Iterator[str]:
    for claim in objects.claims:
        if claim.status.reserved_for and claim.status.allocation is None:
            yield f"claim {claim.metadata.namespace}/{claim.metadata.name} is reserved and not allocated"


def _running_without_devices(objects: StoredObjects) -> Iterator[str]:
    claims = {(claim.metadata.namespace, claim.metadata.name): claim for claim in objects.claims}
    for pod in objects.pods:
        if not pod.spec.node_name or pod.is_finished or pod.is_terminating:
            continue
        for use in claims_of(pod):
            claim = claims.get((pod.metadata.namespace, use.claim))
            if claim is None or claim.status.allocation is None:
                yield f"pod {pod.metadata.name} runs on {pod.spec.node_name} and claim {use.claim} is not allocated"
            elif not is_reserved_for(claim, pod):
                yield f"pod {pod.metadata.name} runs and claim {use.claim} is not reserved for it"
