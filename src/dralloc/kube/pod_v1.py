"""The view of pods: claims, placement rules and status.

Like the views of the other core kinds (`core_v1`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import field

from dralloc.kube.meta_v1 import ApiObject, LabelSelector, NodeSelector, NodeSelectorTerm
from dralloc.kube.volumes_v1 import PersistentVolumeClaimTemplate
from dralloc.kube.wire import Int32, Int64, Time, Wire, printed
from dralloc.primitives.quantity import Quantity

PENDING: Final = "Pending"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
# The phases of pods whose containers will never run again.
FINISHED: Final = (SUCCEEDED, FAILED)
DEFAULT_SCHEDULER: Final = "default-scheduler"
# On a pod that a kubelet runs from a file; deleting it in the API does not end it.
MIRROR_POD: Final = "kubernetes.io/config.mirror"
# Of cluster autoscalers: with the value false, the pod must not be moved.
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"


class PodResourceClaim(Wire):
    """A claim that a pod uses: an existing one, or one to be made from a template for this pod."""

    name: str = printed("")
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class ContainerClaim(Wire):
    """A claim of the pod that a container uses, or the devices of one request of it."""

    name: str = printed("")
    request: str = ""


class ResourceRequirements(Wire):
    limits: dict[str, Quantity] = field(default_factory=dict)
    requests: dict[str, Quantity] = field(default_factory=dict)
    claims: tuple[ContainerClaim, ...] = ()


class ContainerPort(Wire):
    UNREAD: ClassVar = ("name",)

    container_port: Int32 = printed(0)
    host_port: Int32 = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class Container(Wire):
    UNREAD: ClassVar = (
        "args",
        "command",
        "env",
        "envFrom",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "resizePolicy",
        "restartPolicyRules",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    )

    name: str = printed("")
    image: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = field(default_factory=lambda: ResourceRequirements())
    restart_policy: str | None = None


class Toleration(Wire):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class PreferredSchedulingTerm(Wire):
    weight: Int32 = printed(0)
    preference: NodeSelectorTerm = field(default_factory=lambda: NodeSelectorTerm())


class NodeAffinity(Wire):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(Wire):
    """Which pods are meant, and the topology domain: nodes with the same value of the label `topology_key` are close."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = printed("")
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Wire):
    weight: Int32 = printed(0)
    pod_affinity_term: PodAffinityTerm = field(default_factory=lambda: PodAffinityTerm())


class PodAffinity(Wire):
    """Affinity or anti-affinity to other pods."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire):
    """Keeps the numbers of matching pods in the topology domains at most `max_skew` apart."""

    max_skew: Int32 = printed(0)
    topology_key: str = printed("")
    when_unsatisfiable: str = printed("")
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class PersistentVolumeClaimVolumeSource(Wire):
    claim_name: str = printed("")
    read_only: bool = False


class EphemeralVolumeSource(Wire):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class Volume(Wire):
    """The parts of a volume that tie a pod to nodes."""

    UNREAD: ClassVar = (
        "azureFile",
        "cephfs",
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gitRepo",
        "glusterfs",
        "hostPath",
        "image",
        "nfs",
        "photonPersistentDisk",
        "projected",
        "quobyte",
        "scaleIO",
        "secret",
        "storageos",
        "vsphereVolume",
    )

    name: str = printed("")
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    # Disks of the machine's surroundings, some of which are attached to one node at a time.
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None


class PodSchedulingGate(Wire):
    name: str = printed("")


class PodSchedulingGroup(Wire):
    pod_group_name: str | None = None


class PodSpec(Wire):
    UNREAD: ClassVar = (
        "automountServiceAccountToken",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "evictionResponders",
        "hostAliases",
        "hostIPC",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "os",
        "readinessGates",
        "runtimeClassName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
    )

    containers: tuple[Container, ...] = printed(())
    init_containers: tuple[Container, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: dict[str, Quantity] = field(default_factory=dict)
    host_network: bool = False
    node_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    scheduler_name: str = ""
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None


class PodCondition(Wire):
    type: str = printed("")
    status: str = printed("")
    observed_generation: Int64 = 0
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class PodResourceClaimStatus(Wire):
    """The claim that was made for an entry of the pod; none if none was needed."""

    name: str = printed("")
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Wire):
    container_name: str = printed("")
    resource_name: str = printed("")
    request_name: str = printed("")


class PodExtendedResourceClaimStatus(Wire):
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = printed(())
    resource_claim_name: str = printed("")


class ContainerStateWaiting(Wire):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(Wire):
    started_at: Time | None = None


class ContainerStateTerminated(Wire):
    UNREAD: ClassVar = ("containerID", "signal")

    exit_code: Int32 = printed(0)
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None


class ContainerState(Wire):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire):
    """Whether a container runs, and the resources that it has on the node; after a resize they may differ from its request."""

    UNREAD: ClassVar = (
        "allocatedResourcesStatus",
        "containerID",
        "image",
        "imageID",
        "ready",
        "started",
        "stopSignal",
        "user",
        "volumeMounts",
    )

    name: str = printed("")
    state: ContainerState = printed(ContainerState())
    last_state: ContainerState = printed(ContainerState())
    restart_count: Int32 = printed(0)
    allocated_resources: dict[str, Quantity] = field(default_factory=dict)
    resources: ResourceRequirements | None = None


class PodStatus(Wire):
    UNREAD: ClassVar = (
        "allocatedResources",
        "ephemeralContainerStatuses",
        "hostIP",
        "hostIPs",
        "nodeAllocatableResourceClaimStatuses",
        "observedGeneration",
        "podIP",
        "podIPs",
        "qosClass",
        "resize",
        "resources",
        "volumeHealth",
    )

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    start_time: Time | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(ApiObject):
    spec: PodSpec = field(default_factory=lambda: PodSpec())
    status: PodStatus = field(default_factory=lambda: PodStatus())

    @property
    def is_finished(self) -> bool:
        """True if its containers will never run again."""
        return self.status.phase in FINISHED

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None
