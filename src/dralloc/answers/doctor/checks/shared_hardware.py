"""Hardware that a device plugin and a DRA driver both give out.

A device plugin reports an extended resource in `status.allocatable` of its node; a driver publishes slices for the node. Whether both
mean the same hardware is certain if a device class with that `extendedResourceName` selects devices of the node. It is likely if
the driver is of the domain of the resource, and either both have the same number of devices, or the driver or the `type` of a device
has the name of the resource.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dralloc.answers.doctor.check import Finding, HealthCheck, Observation, apply
from dralloc.answers.doctor.cluster_facts import ClusterFacts
from dralloc.devices.allocator.candidate_devices import DeviceCriteria, matches_of
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.devices.slices import IndexedSlice, bits_of, newest_indexed
from dralloc.devices.snapshot import Snapshot
from dralloc.devices.taints import repels
from dralloc.kube.core_v1 import Node
from dralloc.kube.diagnostics import Severity
from dralloc.kube.extended_resources import (
    IMPLICIT_PREFIX,
    ExtendedResourceClasses,
    extended_names,
    is_extended,
    served_by_devices,
)
from dralloc.kube.pod_claims import claims_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.primitives.quantity import NANOS

TAINT_KEY: Final = "dralloc.io/double-booked"
_NAMES_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overlap:
    """A node on which a resource of a device plugin and devices of a driver are the same hardware."""

    node: str
    resource: str
    driver: str
    pools: frozenset[PoolId]
    plugin_count: int
    device_count: int
    reason: str
    is_certain: bool


@dataclass(slots=True)
class _Users:
    """Who has the hardware, by node: pods through device plugins, claims through slices."""

    pods: dict[tuple[str, str], list[Pod]] = field(default_factory=dict)
    claims: dict[PoolId, list[ResourceClaim]] = field(default_factory=dict)


def _look(facts: ClusterFacts) -> Iterator[Observation]:
    plugins = {node.metadata.name: names for node in facts.objects.all(Node).values() if (names := _plugins(node))}
    named = {each.spec.node_name for each in facts.objects.all(ResourceSlice).values()}
    if not plugins.keys() & named:
        return
    snapshot = facts.objects.snapshot()
    overlaps: dict[tuple[str, str], list[_Overlap]] = {}
    for each in _overlaps(facts, snapshot, plugins):
        overlaps.setdefault((each.resource, each.driver), []).append(each)
    users = _users(facts) if overlaps else _Users()
    for _, found in sorted(overlaps.items()):
        yield _finding(snapshot, found, users, facts.objects.server_version)


def _plugins(node: Node) -> dict[str, int]:
    """The extended resources that device plugins offer on the node. A plugin that stopped leaves an amount of zero."""
    return {
        name: amount.nanos // NANOS
        for name, amount in node.status.allocatable.items()
        if is_extended(name) and not name.startswith(IMPLICIT_PREFIX) and amount.nanos > 0
    }


def _overlaps(facts: ClusterFacts, snapshot: Snapshot, plugins: Mapping[str, Mapping[str, int]]) -> Iterator[_Overlap]:
    classes = ExtendedResourceClasses(facts.objects.all(DeviceClass).values())
    criteria = {
        name: _criteria(facts, found)
        for name in {name for names in plugins.values() for name in names}
        if (found := classes.find(name)) is not None
    }
    local: dict[tuple[str, str], list[IndexedSlice]] = {}
    for pool_id, pool in snapshot.pools.items():
        for indexed in newest_indexed(pool.slices):
            if indexed.node_name in plugins:
                local.setdefault((indexed.node_name, pool_id.driver), []).append(indexed)
    for (node, driver), slices in sorted(local.items()):
        offered = {indexed: mask for indexed in slices if (mask := _offered(snapshot, indexed))}
        for resource, count in plugins[node].items():
            same = _same_hardware(resource, driver, count, offered, criteria.get(resource))
            if same is not None:
                reason, is_certain, devices = same
                yield _Overlap(
                    node=node,
                    resource=resource,
                    driver=driver,
                    pools=frozenset(indexed.pool_id for indexed in offered),
                    plugin_count=count,
                    device_count=devices,
                    reason=reason,
                    is_certain=is_certain,
                )


def _criteria(facts: ClusterFacts, device_class: DeviceClass) -> tuple[DeviceClass, DeviceCriteria]:
    features = facts.objects.features.of_scheduler()
    expressions = tuple(each.cel.expression for each in device_class.spec.selectors if each.cel is not None)
    return device_class, DeviceCriteria(
        class_selectors=expressions,
        request_selectors=(),
        capacity=None,
        tolerations=None,
        allows_binding=True,
        allows_counters=True,
        fractional_ranges=features.fractional_ranges,
        skips_negative_amounts=True,
    )


def _offered(snapshot: Snapshot, indexed: IndexedSlice) -> int:
    """The devices that no taint withdraws."""
    mask = indexed.everything
    for tainted, taint in indexed.taints_from(snapshot.rules):
        if repels(taint, ()):
            mask &= ~tainted
    for bit in bits_of(mask):
        if any(repels(taint, ()) for taint in indexed.devices[bit].taints):
            mask &= ~(1 << bit)
    return mask


def _same_hardware(
    resource: str,
    driver: str,
    count: int,
    offered: Mapping[IndexedSlice, int],
    of_class: tuple[DeviceClass, DeviceCriteria] | None,
) -> tuple[str, bool, int] | None:
    """Why both are the same hardware, whether that is certain, and the number of devices; None if nothing says so."""
    devices = sum(mask.bit_count() for mask in offered.values())
    if of_class is not None:
        device_class, criteria = of_class
        selected = sum((matches_of(each, criteria).matched & mask).bit_count() for each, mask in offered.items())
        if selected:
            name = device_class.metadata.name
            return f"class {name} serves {resource} with devices of the driver", True, selected
    domain, _, base = resource.partition("/")
    if not devices or not (driver == domain or driver.endswith(f".{domain}")):
        return None
    label = driver.removesuffix(domain).rstrip(".")
    types = {
        attribute.string
        for indexed in offered
        for device in indexed.devices
        for name, attribute in device.attributes.items()
        if name.rpartition("/")[2] == "type" and attribute.string
    }
    words = [word for word in (label, *sorted(types)) if word and word in base]
    if words:
        return f"driver and resource are of {domain}, and both say {words[0]}", False, devices
    if devices == count:
        return f"driver and resource are of {domain}, and both have {count}", False, devices
    return None


def _users(facts: ClusterFacts) -> _Users:
    users = _Users()
    for pod in facts.objects.all(Pod).values():
        if not pod.spec.node_name or pod.is_finished:
            continue
        names = extended_names(pod.spec)
        for name in names - served_by_devices(pod.status.extended_resource_claim_status):
            users.pods.setdefault((pod.spec.node_name, name), []).append(pod)
    for claim in facts.objects.all(ResourceClaim).values():
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        for pool_id in {PoolId.of_result(each) for each in results if not each.admin_access}:
            users.claims.setdefault(pool_id, []).append(claim)
    return users


def _finding(snapshot: Snapshot, overlaps: list[_Overlap], users: _Users, server_version: str) -> Finding:
    first = overlaps[0]
    evidence: list[str] = []
    is_shared = False
    for each in overlaps[:_NAMES_MAX]:
        pods = users.pods.get((each.node, each.resource), [])
        claims = {ClaimId.of(claim): claim for pool_id in each.pools for claim in users.claims.get(pool_id, ())}
        evidence.append(
            f"node {each.node}: allocatable {each.resource} is {each.plugin_count}, and slices of {each.driver} offer "
            f"{each.device_count} devices"
        )
        evidence.append(f"node {each.node}: {_used_text(pods, claims)}")
    for each in overlaps:
        pods_here = users.pods.get((each.node, each.resource))
        is_shared = is_shared or bool(pods_here and any(users.claims.get(pool_id) for pool_id in each.pools))
    if len(overlaps) > _NAMES_MAX:
        evidence.append(f"the same on {len(overlaps) - _NAMES_MAX} more nodes")
    nodes = ", ".join(each.node for each in overlaps[:_NAMES_MAX]) + ("…" if len(overlaps) > _NAMES_MAX else "")
    certainty = "certain" if all(each.is_certain for each in overlaps) else "likely"
    return Finding(
        subject=f"{first.resource} and driver {first.driver} on {nodes}",
        severity=Severity.ERROR if is_shared else Severity.WARNING,
        message=f"a device plugin and a DRA driver give out the same hardware ({certainty}: {first.reason})",
        evidence=tuple(evidence),
        advice="Let one of them serve a node. The command keeps new claims from the devices, until the device plugin is removed from "
        f"the node (then: kubectl delete devicetaintrule). Or remove the driver {first.driver} from it.",
        commands=tuple(_taint_commands(snapshot, overlaps, _rule_version(server_version))),
    )


def _used_text(pods: list[Pod], claims: Collection[ClaimId]) -> str:
    """Who has devices through which of them, and the pods that have both."""
    both = [pod for pod in pods if any(ClaimId(pod.metadata.namespace, use.claim) in claims for use in claims_of(pod))]
    parts = {
        "pods through the device plugin": [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods],
        "claims through the driver": list(map(str, claims)),
        "pods with both": [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in both],
    }
    return "; ".join(f"{what}: {_few(names)}" for what, names in parts.items() if names) or "it is not in use yet"


def _few(names: list[str]) -> str:
    return ", ".join(sorted(names)[:_NAMES_MAX]) + ("…" if len(names) > _NAMES_MAX else "")


def _rule_version(server_version: str) -> str:
    """The version in which a server of this release has DeviceTaintRules."""
    minor = re.match(r"v1\.(\d+)", server_version)
    if minor is None or int(minor[1]) >= 37:
        return "v1"
    return "v1beta2" if int(minor[1]) == 36 else "v1alpha3"


def _taint_commands(snapshot: Snapshot, overlaps: list[_Overlap], version: str) -> Iterator[str]:
    """A rule for each pool; one for all if the driver has no other pools."""
    driver = overlaps[0].driver
    pools = sorted({pool_id for each in overlaps for pool_id in each.pools})
    every = sum(pool_id.driver == driver for pool_id in snapshot.pools)
    if len(pools) == every and len(pools) > 1:
        yield apply(_rule(version, f"double-booked-{driver}", {"driver": driver}))
        return
    for pool_id in pools:
        name = f"double-booked-{driver}-{pool_id.pool.replace('/', '-')}"
        yield apply(_rule(version, name, {"driver": driver, "pool": pool_id.pool}))


def _rule(version: str, name: str, selector: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": TAINT_KEY, "effect": "NoSchedule"}},
    }


DOUBLE_BOOKING: Final = HealthCheck(
    id="double-booking",
    title="hardware that a device plugin and a DRA driver both give out",
    why="Neither knows what the other gave out, so that two pods get the same device.",
    look=_look,
    needs=(Node, ResourceSlice),
    uses=(DeviceClass, Pod, ResourceClaim, DeviceTaintRule),
)
