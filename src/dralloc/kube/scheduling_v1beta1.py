"""`scheduling.k8s.io/v1beta1`: groups of pods that are scheduled together, and workloads that describe them."""

from __future__ import annotations

from typing import Any, Final

from msgspec import field

from dralloc.kube.meta_v1 import ApiObject, Condition
from dralloc.kube.scheduling_v1 import GROUP
from dralloc.kube.wire import Int32, Wire, printed

API_VERSION: Final = f"{GROUP}/v1beta1"

# On a PodGroup until no running pod is a member.
PROTECTION_FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"

# Types of conditions, and the reasons of the first.
INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
DISRUPTION_TARGET: Final = "DisruptionTarget"
SCHEDULED: Final = "Scheduled"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"


class BasicSchedulingPolicy(Wire):
    """Each pod is scheduled by itself."""


class GangSchedulingPolicy(Wire):
    """At least `min_count` pods are scheduled together, or none."""

    min_count: Int32 = printed(0)


class PodGroupSchedulingPolicy(Wire):
    """Exactly one policy."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Wire):
    key: str = printed("")


class PodGroupSchedulingConstraints(Wire):
    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupResourceClaim(Wire):
    """A claim that the members share: an existing one, or one to be made from a template for the group."""

    name: str = printed("")
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SingleDisruptionMode(Wire):
    """Pods may be disrupted one by one."""


class AllDisruptionMode(Wire):
    """If one pod is disrupted, all are."""


class DisruptionMode(Wire):
    """Exactly one mode."""

    single: SingleDisruptionMode | None = None
    all: AllDisruptionMode | None = None


class WorkloadReference(Wire):
    workload_name: str = printed("")
    template_name: str = printed("")


class PodGroupSpec(Wire):
    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = field(default_factory=lambda: PodGroupSchedulingPolicy())
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None


class PodGroupResourceClaimStatus(Wire):
    """The claim that was made for an entry of the group; none if none was needed."""

    name: str = printed("")
    resource_claim_name: str | None = None


class PodGroupStatus(Wire):
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class PodGroup(ApiObject):
    spec: PodGroupSpec = field(default_factory=lambda: PodGroupSpec())
    status: PodGroupStatus = field(default_factory=lambda: PodGroupStatus())

    @property
    def min_count(self) -> int:
        """How many pods must be placed together; 1 if each is scheduled by itself."""
        gang = self.spec.scheduling_policy.gang
        return 1 if gang is None else gang.min_count

    @property
    def is_gang(self) -> bool:
        return self.spec.scheduling_policy.gang is not None

    @property
    def was_scheduled(self) -> bool:
        """True if its members had nodes once."""
        return any(each.type == INITIALLY_SCHEDULED and each.status == "True" for each in self.status.conditions)

    @property
    def topology_key(self) -> str:
        """The node label whose value all pods must share; empty if there is none."""
        constraints = self.spec.scheduling_constraints
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""


class PodGroupTemplate(Wire):
    name: str = printed("")
    scheduling_policy: PodGroupSchedulingPolicy = field(default_factory=lambda: PodGroupSchedulingPolicy())
    scheduling_constraints: PodGroupSchedulingConstraints | None = printed(None)
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None


class TypedLocalObjectReference(Wire):
    api_group: str = ""
    kind: str = printed("")
    name: str = printed("")


class WorkloadSpec(Wire):
    """Composite templates are dropped: only an alpha version of Kubernetes has composite groups."""

    controller_ref: TypedLocalObjectReference | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] | None = printed(None)
    composite_pod_group_templates: tuple[dict[str, Any], ...] = ()


class Workload(ApiObject):
    spec: WorkloadSpec = field(default_factory=lambda: WorkloadSpec())
