"""The merge rules of each kind: which lists merge by element, and which parts are atomic.

One table serves server-side apply, strategic merge patch and the OpenAPI documents. It lists exceptions only: by default, an object
merges by member and a list is atomic. All versions of a kind share one rule, as they differ only inside atomic lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """The rule of one field: an object, or a list and its elements."""

    # Rules of the members of the object, or of each list element.
    members: Mapping[str, MergeRule] = field(default_factory=dict)
    # Owned and replaced as a whole.
    atomic: bool = False
    # The members that identify a list element in an apply; absent ones have their default.
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, str] = field(default_factory=dict)
    # Each element of a keyed list is atomic.
    atomic_elements: bool = False
    # A list of scalars that apply treats as a set.
    is_set: bool = False
    # A strategic merge patch merges the list by this member, or by value if there is none.
    strategic: bool = False
    strategic_key: str | None = None
    # Alternative members: a patch that sets one removes the others.
    retains_keys: bool = False


def record(**members: MergeRule) -> MergeRule:
    """The rule of an object with these members."""
    return MergeRule(members=members)


def keyed(
    *keys: str,
    by: str | None = None,
    defaults: Mapping[str, str] | None = None,
    retains_keys: bool = False,
    **members: MergeRule,
) -> MergeRule:
    """The rule of a list of objects with these keys; a strategic merge patch merges it `by` one of them, if at all."""
    return MergeRule(
        keys=keys,
        key_defaults=defaults or {},
        strategic=by is not None,
        strategic_key=by,
        retains_keys=retains_keys,
        members=members,
    )


ATOMIC: Final = MergeRule(atomic=True)
SET: Final = MergeRule(is_set=True)
STRATEGIC_SET: Final = MergeRule(is_set=True, strategic=True)
# Atomic in an apply, but merged by element by a strategic merge patch.
CONDITIONS: Final = keyed("type", by="type")

OBJECT_META: Final = record(
    finalizers=STRATEGIC_SET,
    ownerReferences=MergeRule(keys=("uid",), atomic_elements=True, strategic=True, strategic_key="uid"),
)

# --- resource.k8s.io ------------------------------------------------------------------------------------

_RESOURCE_CLAIM: Final = record(
    metadata=OBJECT_META,
    status=record(
        allocation=record(nodeSelector=ATOMIC),
        reservedFor=keyed("uid", by="uid"),
        devices=keyed("driver", "device", "pool", "shareID", conditions=keyed("type"), data=ATOMIC),
    ),
)
_RESOURCE_CLAIM_TEMPLATE: Final = record(metadata=OBJECT_META, spec=record(metadata=OBJECT_META))
_RESOURCE_SLICE: Final = record(metadata=OBJECT_META, spec=record(nodeSelector=ATOMIC, skipNodeOperations=SET))
_DEVICE_TAINT_RULE: Final = record(metadata=OBJECT_META, status=record(conditions=CONDITIONS))

# --- core -------------------------------------------------------------------------------------------------

_CONTAINERS: Final = keyed(
    "name",
    by="name",
    env=keyed(
        "name",
        by="name",
        valueFrom=record(
            configMapKeyRef=ATOMIC, fieldRef=ATOMIC, fileKeyRef=ATOMIC, resourceFieldRef=ATOMIC, secretKeyRef=ATOMIC
        ),
    ),
    ports=keyed("containerPort", "protocol", by="containerPort", defaults={"protocol": "TCP"}),
    resources=record(claims=keyed("name")),
    volumeDevices=keyed("devicePath", by="devicePath"),
    volumeMounts=keyed("mountPath", by="mountPath"),
)
_VOLUMES: Final = keyed(
    "name",
    by="name",
    retains_keys=True,
    cephfs=record(secretRef=ATOMIC),
    cinder=record(secretRef=ATOMIC),
    csi=record(nodePublishSecretRef=ATOMIC),
    ephemeral=record(volumeClaimTemplate=record(metadata=OBJECT_META, spec=record(dataSource=ATOMIC, selector=ATOMIC))),
    flexVolume=record(secretRef=ATOMIC),
    iscsi=record(secretRef=ATOMIC),
    rbd=record(secretRef=ATOMIC),
    scaleIO=record(secretRef=ATOMIC),
    storageos=record(secretRef=ATOMIC),
)
_POD_SPEC: Final = record(
    affinity=record(nodeAffinity=record(requiredDuringSchedulingIgnoredDuringExecution=ATOMIC)),
    containers=_CONTAINERS,
    ephemeralContainers=_CONTAINERS,
    hostAliases=keyed("ip", by="ip"),
    imagePullSecrets=MergeRule(keys=("name",), atomic_elements=True, strategic=True, strategic_key="name"),
    initContainers=_CONTAINERS,
    nodeSelector=ATOMIC,
    resourceClaims=keyed("name", by="name", retains_keys=True),
    resources=record(claims=keyed("name")),
    schedulingGates=keyed("name", by="name"),
    topologySpreadConstraints=keyed("topologyKey", "whenUnsatisfiable", by="topologyKey", labelSelector=ATOMIC),
    volumes=_VOLUMES,
)
_POD_STATUS: Final = record(
    conditions=CONDITIONS,
    hostIPs=MergeRule(atomic=True, strategic=True, strategic_key="ip"),
    podIPs=keyed("ip", by="ip"),
    resourceClaimStatuses=keyed("name", by="name", retains_keys=True),
)
_NODE: Final = record(
    metadata=OBJECT_META,
    spec=record(podCIDRs=STRATEGIC_SET),
    status=record(addresses=keyed("type", by="type"), conditions=CONDITIONS),
)
_JOB: Final = record(
    metadata=OBJECT_META,
    spec=record(selector=ATOMIC, template=record(metadata=OBJECT_META, spec=_POD_SPEC)),
    status=record(
        conditions=MergeRule(atomic=True, strategic=True, strategic_key="type"),
        uncountedTerminatedPods=record(failed=SET, succeeded=SET),
    ),
)
_WORKLOAD: Final = record(
    metadata=OBJECT_META,
    spec=record(selector=ATOMIC, template=record(metadata=OBJECT_META, spec=_POD_SPEC)),
    status=record(conditions=CONDITIONS),
)
_GROUP_CLAIMS: Final = keyed("name", by="name", retains_keys=True)
_POD_GROUP: Final = record(
    metadata=OBJECT_META,
    spec=record(resourceClaims=_GROUP_CLAIMS),
    status=record(conditions=CONDITIONS, resourceClaimStatuses=_GROUP_CLAIMS),
)
_WORKLOAD_OF_GROUPS: Final = record(
    metadata=OBJECT_META, spec=record(podGroupTemplates=keyed("name", resourceClaims=_GROUP_CLAIMS))
)
_SERVICE_ACCOUNT: Final = record(metadata=OBJECT_META, secrets=keyed("name", by="name"))
_BINDING: Final = record(metadata=OBJECT_META, roleRef=ATOMIC)

_ANY_KIND: Final = record(metadata=OBJECT_META)

_RULES: Final[Mapping[tuple[str, str], MergeRule]] = {
    ("resource.k8s.io", "ResourceClaim"): _RESOURCE_CLAIM,
    ("resource.k8s.io", "ResourceClaimTemplate"): _RESOURCE_CLAIM_TEMPLATE,
    ("resource.k8s.io", "ResourceSlice"): _RESOURCE_SLICE,
    ("resource.k8s.io", "DeviceTaintRule"): _DEVICE_TAINT_RULE,
    ("resource.k8s.io", "ResourcePoolStatusRequest"): _DEVICE_TAINT_RULE,
    ("scheduling.k8s.io", "PodGroup"): _POD_GROUP,
    ("scheduling.k8s.io", "Workload"): _WORKLOAD_OF_GROUPS,
    ("", "Pod"): record(metadata=OBJECT_META, spec=_POD_SPEC, status=_POD_STATUS),
    ("", "Node"): _NODE,
    ("", "Namespace"): record(metadata=OBJECT_META, status=record(conditions=CONDITIONS)),
    ("", "ResourceQuota"): record(metadata=OBJECT_META, spec=record(scopeSelector=ATOMIC)),
    ("", "Event"): record(metadata=OBJECT_META, involvedObject=ATOMIC, related=ATOMIC),
    ("batch", "Job"): _JOB,
    ("apps", "Deployment"): _WORKLOAD,
    ("apps", "DaemonSet"): _WORKLOAD,
    ("apps", "ReplicaSet"): _WORKLOAD,
    ("apps", "StatefulSet"): _WORKLOAD,
    ("", "ReplicationController"): _WORKLOAD,
    ("", "ServiceAccount"): _SERVICE_ACCOUNT,
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
}


def merge_rule(group: str, kind: str) -> MergeRule:
    return _RULES.get((group, kind), _ANY_KIND)
