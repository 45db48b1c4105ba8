"""A cluster as a value, to ask the scheduling cycle in a few lines: no API server, no watches, no mutable state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dralloc.devices.identity import ClaimId
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.extended_resources import ExtendedResourceClasses, extended_owner
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import Device, DeviceClass, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import Decision
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.state.change_log import ChangeLog
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_topology import PodTopology
from dralloc.scheduler.state.volume_state import VolumeState
from dralloc.testing.builders import device_class, resource_slice
from tests.scheduler.pod_specs import node_state
from tests.support.scheduled_cluster import node

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NO_NODES: Mapping[str, Sequence[Device]] = {}


@dataclass(frozen=True, kw_only=True)
class ClusterValue:
    """A `ClusterView` that never changes."""

    nodes: Mapping[str, NodeState]
    classes: Mapping[str, DeviceClass]
    snapshot: Snapshot
    claims: Mapping[ClaimId, ResourceClaim] = field(default_factory=dict)
    in_use: frozenset[ClaimId] = frozenset()
    pod_topology: PodTopology = field(default_factory=PodTopology)
    volumes: VolumeState = field(default_factory=VolumeState)
    changes: ChangeLog = field(default_factory=ChangeLog)

    def find_claim(self, claim_id: ClaimId) -> ResourceClaim | None:
        return self.claims.get(claim_id)

    @property
    def extended_classes(self) -> ExtendedResourceClasses:
        return ExtendedResourceClasses(self.classes.values())

    def extended_claim_of(self, pod_uid: str) -> ClaimId | None:
        made = (claim_id for claim_id, claim in self.claims.items() if extended_owner(claim) == pod_uid)
        return next(made, None)

    def is_in_use(self, claim_id: ClaimId) -> bool:
        return claim_id in self.in_use


def cluster(
    nodes: Mapping[str, Sequence[Device]] = NO_NODES,
    claims: Sequence[ResourceClaim] = (),
    *,
    classes: Sequence[DeviceClass] = (device_class(),),
    in_use: Sequence[str] = (),
) -> ClusterValue:
    """Nodes with devices of their own, and claims of the default namespace."""
    states = {name: node_state(node(name)) for name in nodes}
    slices = [resource_slice(name, *devices, pool=name, node_name=name) for name, devices in nodes.items() if devices]
    return ClusterValue(
        nodes=states,
        classes={each.metadata.name: each for each in classes},
        snapshot=Snapshot.of(slices=slices, claims=claims, nodes=[state.offer.place for state in states.values()]),
        claims={ClaimId.of(claim): claim for claim in claims},
        in_use=frozenset(ClaimId("default", name) for name in in_use),
    )


def decide(value: ClusterValue, pod: Pod, gates: str = "") -> Decision:
    return Cycle(value, FeatureGates.parse(gates)).decide(pod, NOW)
