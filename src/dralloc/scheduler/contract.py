"""The contract of the scheduler's stages: a view of the cluster and a pod go in, a decision comes out.

`state` produces the view and `decide` reads it. The scheduler loop consumes decisions: it commits placements, which the state
assumes and `bind` writes, and parks rejected pods in the `queue` until one of the events that they wait for. A what-if
builds a view of its own, asks the same cycle, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct, field

from dralloc.devices.allocator.outcome import ClaimAllocation
from dralloc.devices.allocator.stamp import stamp
from dralloc.devices.identity import ClaimId
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.extended_resources import ExtendedResourceClasses
from dralloc.kube.pod_v1 import Pod, PodExtendedResourceClaimStatus
from dralloc.kube.resource_v1 import AllocationResult, DeviceClass, ResourceClaim
from dralloc.scheduler.state.change_log import ChangeLog
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.placed_pods import PodKey
from dralloc.scheduler.state.pod_resources import PodResources
from dralloc.scheduler.state.pod_topology import PodTopology
from dralloc.scheduler.state.volume_state import VolumePlan, VolumeState

# The Kubernetes plugin that decides about claims and devices.
DYNAMIC_RESOURCES: Final = "DynamicResources"


class ClusterView(Protocol):
    """Everything that a decision depends on besides the pod, decisions that are not written yet included.

    Nodes, claims, classes and the snapshot are immutable values. Between two decisions the view may change; `changes` then
    tells a reader which of its cached verdicts are stale.
    """

    @property
    def nodes(self) -> Mapping[str, NodeState]: ...

    @property
    def classes(self) -> Mapping[str, DeviceClass]: ...

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def changes(self) -> ChangeLog: ...

    @property
    def pod_topology(self) -> PodTopology: ...

    @property
    def volumes(self) -> VolumeState: ...

    def find_claim(self, claim_id: ClaimId) -> ResourceClaim | None:
        """The claim, with its assumed allocation and reservations."""

    def is_in_use(self, claim_id: ClaimId) -> bool:
        """True if a pod that has a node, or is assumed to get one, uses the claim."""

    @property
    def extended_classes(self) -> ExtendedResourceClasses: ...

    def extended_claim_of(self, pod_uid: str) -> ClaimId | None:
        """A stored claim that was made for the extended resources of the pod."""


class ExtendedClaim(Struct, frozen=True, gc=False):
    """The claim that is made with the decision for the extended resources of the pod, and what the pod's status then says."""

    claim: ResourceClaim
    status: PodExtendedResourceClaimStatus

    @property
    def claim_id(self) -> ClaimId:
        return ClaimId.of(self.claim)


class CommittedPlacement(Struct, frozen=True, gc=False):
    """A placement whose shares have IDs. The cluster state assumes it, the binder writes it.

    `allocations` has all claims of the pod; those in `new` are allocated by this placement.
    """

    node: str
    allocations: Mapping[ClaimId, AllocationResult] = field(default_factory=dict)
    new: frozenset[ClaimId] = frozenset()
    volumes: VolumePlan | None = None
    extended: ExtendedClaim | None = None
    needs: PodResources | None = None


class Placement(Struct, frozen=True, gc=False):
    """The pod gets the node. Its claims in `held` have devices already, those in `new` get theirs with this decision."""

    node: str
    held: Mapping[ClaimId, AllocationResult] = field(default_factory=dict)
    new: Mapping[ClaimId, ClaimAllocation] = field(default_factory=dict)
    # The time that new allocations record; None where the feature that waits for devices is off.
    allocated_at: datetime | None = None
    # None unless claims to persistent volumes are bound with this decision.
    volumes: VolumePlan | None = None
    # None if devices serve no extended resource of the pod on the node. Its claim is one of `new`.
    extended: ExtendedClaim | None = None
    # What the pod uses of the node itself, where the decision has it at hand.
    needs: PodResources | None = None

    def commit(self, share_ids: Callable[[], str]) -> CommittedPlacement:
        """The placement with a new ID for each share."""
        stamped = {claim_id: stamp(each, share_ids, self.allocated_at) for claim_id, each in self.new.items()}
        allocations = {**self.held, **stamped}
        return CommittedPlacement(self.node, allocations, frozenset(stamped), self.volumes, self.extended, self.needs)


class PlannedVictim(Struct, frozen=True, gc=False):
    """A pod to evict, and its claims that lose their devices once the victims are gone."""

    pod: Pod
    node: str
    frees: tuple[ClaimId, ...] = ()


class PreemptionPlan(Struct, frozen=True, gc=False):
    """Once `victims`, and the pods in `leaving`, are gone, the pod fits: `placement` proves it.

    `cost` is what sets of victims are compared by; `is_cheapest`: no other set costs less; False if the search was cut short.
    """

    node: str
    victims: tuple[PlannedVictim, ...]
    leaving: tuple[PodKey, ...]
    placement: Placement
    cost: tuple[float, ...] = ()
    is_cheapest: bool = True


class WaitReason(StrEnum):
    """What a pod waits for that no node decides. Stable names, beside those of `ReasonCause`."""

    # A claim, class or reservation is missing, not ready or refused.
    CLAIMS = "ClaimsNotReady"
    # Devices of a claim failed to get ready for the pod.
    BINDING = "DevicesNotBound"
    VOLUMES = "Volumes"
    # The other pods of its group.
    GROUP = "PodGroup"
    NO_NODES = "NoNodes"


class Rejection(Struct, frozen=True, gc=False):
    """No node can take the pod until one of the events in `waits_for` happens.

    `is_early`: the missing object is probably about to be created, so that the pod's condition need not say so yet.
    `deallocate` names a claim that no other pod uses and whose devices keep the pod from nodes that could take it.
    """

    message: str
    waits_for: frozenset[ClusterEvent]
    is_early: bool = False
    deallocate: ClaimId | None = None
    # A claim that an earlier attempt made for the pod and that must be deleted first.
    delete: ClaimId | None = None
    # The Kubernetes plugins that rejected the pod.
    plugins: frozenset[str] = frozenset({DYNAMIC_RESOURCES})
    # What the pod waits for, for metrics: a `ReasonCause` of the nodes that come nearest, or what else it lacks.
    reason: str = WaitReason.CLAIMS
    # True if devices that match have too little capacity left.
    lacks_capacity: bool = False
    # Equal for pods that get the same decision; None where the decision is for this pod alone.
    equivalence_key: bytes | None = None
    # How the pod gets a node after all: other pods are evicted, or leave.
    preemption: PreemptionPlan | None = None


class DecisionFailure(Struct, frozen=True, gc=False):
    """The claims or the devices have an error, which no node and no event makes good."""

    message: str


Decision = Placement | Rejection | DecisionFailure
