"""Pods: all rules about claims, and the rules that users break most often.

Kubernetes has hundreds of rules for pods. Rules about fields that we do not read are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralloc.kube import pod_v1
from dralloc.kube.meta_v1 import LabelSelector
from dralloc.kube.pod_v1 import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from dralloc.kube.scheduling_v1 import PREEMPTION_POLICIES
from dralloc.kube.validation import formats
from dralloc.kube.validation.metadata import validate_labels
from dralloc.kube.validation.node_selector import validate_label_requirement, validate_node_selector
from dralloc.primitives import names
from dralloc.primitives.field_errors import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
)

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS: Final = ("Equal", "Exists")

SPEC: Final = FieldPath.of("spec")
STATUS: Final = FieldPath.of("status")


def validate_pod(pod: pod_v1.Pod) -> Iterator[FieldError]:
    return validate_pod_spec(pod.spec, SPEC)


def validate_pod_spec(spec: pod_v1.PodSpec, path: FieldPath) -> Iterator[FieldError]:
    yield from _validate_pod_claims(spec.resource_claims, path.child("resourceClaims"))
    yield from _validate_containers(spec, path)
    if spec.resources is not None and spec.resources.claims:
        yield forbidden(path.child("resources", "claims"), "claims are only allowed for containers")
    if spec.node_name:
        yield from formats.validate_dns_subdomain(spec.node_name, path.child("nodeName"))
    if spec.restart_policy:
        yield from formats.validate_choice(spec.restart_policy, path.child("restartPolicy"), RESTART_POLICIES)
    if spec.preemption_policy is not None:
        yield from formats.validate_choice(spec.preemption_policy, path.child("preemptionPolicy"), PREEMPTION_POLICIES)
    if spec.scheduler_name:
        yield from formats.validate_dns_subdomain(spec.scheduler_name, path.child("schedulerName"))
    if spec.termination_grace_period_seconds is not None and spec.termination_grace_period_seconds < 0:
        seconds = spec.termination_grace_period_seconds
        yield invalid(path.child("terminationGracePeriodSeconds"), seconds, "must be greater than or equal to 0")
    yield from _validate_placement(spec, path)


# --- Claims ----------------------------------------------------------------------------------------------------


def _validate_pod_claims(claims: tuple[pod_v1.PodResourceClaim, ...], path: FieldPath) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, claim in enumerate(claims):
        where = path.index(position)
        if not claim.name:
            yield required(where.child("name"))
        elif claim.name in seen:
            yield duplicate(where.child("name"), claim.name)
        else:
            yield from formats.validate_dns_label(claim.name, where.child("name"))
        seen.add(claim.name)
        if (claim.resource_claim_name is None) == (claim.resource_claim_template_name is None):
            yield invalid(
                where, claim.name, "exactly one of resourceClaimName and resourceClaimTemplateName must be set"
            )
        if claim.resource_claim_name is not None:
            yield from formats.validate_dns_subdomain(claim.resource_claim_name, where.child("resourceClaimName"))
        if claim.resource_claim_template_name is not None:
            yield from formats.validate_dns_subdomain(
                claim.resource_claim_template_name, where.child("resourceClaimTemplateName")
            )


def _validate_container_claims(
    claims: tuple[pod_v1.ContainerClaim, ...], known: frozenset[str], path: FieldPath
) -> Iterator[FieldError]:
    """Whole claims, or single requests of them; not both of one claim."""
    seen: set[tuple[str, str]] = set()
    for position, claim in enumerate(claims):
        where = path.index(position)
        if not claim.name:
            yield required(where)
            continue
        repeats = any(name == claim.name and (not request or not claim.request) for name, request in seen)
        if repeats or (claim.name, claim.request) in seen:
            yield duplicate(where, f"{claim.name}/{claim.request}" if claim.request else claim.name)
        if claim.name not in known:
            yield not_found(where, claim.name, "must be one of the names in spec.resourceClaims")
        if claim.request:
            yield from formats.validate_dns_label(claim.request, where.child("request"))
        seen.add((claim.name, claim.request))


# --- Containers ------------------------------------------------------------------------------------------------


def _validate_containers(spec: pod_v1.PodSpec, path: FieldPath) -> Iterator[FieldError]:
    if not spec.containers:
        yield required(path.child("containers"))
    known = frozenset(claim.name for claim in spec.resource_claims)
    seen: set[str] = set()
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for position, container in enumerate(containers):
            where = path.child(field).index(position)
            yield from _validate_container(container, known, where)
            if container.name and container.name in seen:
                yield duplicate(where.child("name"), container.name)
            seen.add(container.name)
            if spec.host_network:
                yield from _validate_host_ports(container, where.child("ports"))


def _validate_host_ports(container: pod_v1.Container, path: FieldPath) -> Iterator[FieldError]:
    """A pod template may omit the host port; a pod has it by default."""
    for position, port in enumerate(container.ports):
        if port.host_port not in (0, port.container_port):
            where = path.index(position).child("hostPort")
            yield invalid(where, port.host_port, "must match `containerPort` when `hostNetwork` is true")


def _validate_container(
    container: pod_v1.Container, known_claims: frozenset[str], path: FieldPath
) -> Iterator[FieldError]:
    yield from formats.validate_required_label(container.name, path.child("name"))
    if not container.image:
        yield required(path.child("image"))
    elif container.image != container.image.strip():
        yield invalid(path.child("image"), container.image, "must not have leading or trailing white space")
    resources = path.child("resources")
    yield from _validate_resources(container.resources, resources)
    yield from _validate_container_claims(container.resources.claims, known_claims, resources.child("claims"))


def _validate_resources(resources: pod_v1.ResourceRequirements, path: FieldPath) -> Iterator[FieldError]:
    if not resources.limits and not resources.requests:
        return
    for field, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in amounts.items():
            where = path.child(field).key(name)
            yield from formats.validate_format(name, where, names.label_key)
            if amount.sign < 0:
                yield invalid(where, amount, "must be greater than or equal to 0")
    for name, amount in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is not None and amount > limit:
            yield invalid(path.child("requests"), amount, f"must be less than or equal to the limit of {name}, {limit}")


# --- Placement -------------------------------------------------------------------------------------------------


def _validate_placement(spec: pod_v1.PodSpec, path: FieldPath) -> Iterator[FieldError]:
    if spec.node_selector:
        yield from validate_labels(spec.node_selector, path.child("nodeSelector"))
    for position, toleration in enumerate(spec.tolerations):
        yield from _validate_toleration(toleration, path.child("tolerations").index(position))
    gates: set[str] = set()
    for position, gate in enumerate(spec.scheduling_gates):
        where = path.child("schedulingGates").index(position)
        yield from formats.validate_format(gate.name, where, names.label_key)
        if gate.name in gates:
            yield duplicate(where, gate.name)
        gates.add(gate.name)
    if spec.scheduling_group is not None:
        yield from _validate_scheduling_group(spec.scheduling_group, path.child("schedulingGroup", "podGroupName"))
    if spec.topology_spread_constraints:
        yield from validate_topology_spread(spec.topology_spread_constraints, path.child("topologySpreadConstraints"))
    if spec.affinity is not None:
        yield from validate_pod_affinity(spec.affinity, path.child("affinity"))
        if spec.affinity.node_affinity is not None:
            yield from _validate_node_affinity(spec.affinity.node_affinity, path.child("affinity", "nodeAffinity"))


def _validate_scheduling_group(group: pod_v1.PodSchedulingGroup, path: FieldPath) -> Iterator[FieldError]:
    if group.pod_group_name is None:
        yield invalid(path, None, "must specify one of: `podGroupName`")
    else:
        yield from formats.validate_dns_subdomain(group.pod_group_name, path)


def _validate_node_affinity(affinity: pod_v1.NodeAffinity, base: FieldPath) -> Iterator[FieldError]:
    if affinity.required_during_scheduling_ignored_during_execution is not None:
        where = base.child("requiredDuringSchedulingIgnoredDuringExecution")
        yield from validate_node_selector(affinity.required_during_scheduling_ignored_during_execution, where)
    for position, term in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        where = base.child("preferredDuringSchedulingIgnoredDuringExecution").index(position)
        if not 1 <= term.weight <= 100:
            yield invalid(where.child("weight"), term.weight, "must be between 1 and 100")
        for index, requirement in enumerate(term.preference.match_expressions):
            yield from validate_label_requirement(
                requirement, where.child("preference", "matchExpressions").index(index)
            )


def _validate_toleration(toleration: pod_v1.Toleration, path: FieldPath) -> Iterator[FieldError]:
    if toleration.key:
        yield from formats.validate_format(toleration.key, path.child("key"), names.label_key)
    elif toleration.operator != "Exists":
        yield invalid(path.child("operator"), toleration.operator, "must be Exists when key is empty")
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        yield invalid(path.child("effect"), toleration.effect, "must be NoExecute when tolerationSeconds is set")
    match toleration.operator:
        case "" | "Equal":
            yield from formats.validate_format(toleration.value, path.child("operator"), names.label_value)
        case "Exists":
            if toleration.value:
                yield invalid(path.child("operator"), toleration.value, "value must be empty when operator is Exists")
        case operator:
            yield from formats.validate_choice(operator, path.child("operator"), TOLERATION_OPERATORS)
    if toleration.effect:
        yield from formats.validate_choice(toleration.effect, path.child("effect"), TAINT_EFFECTS)


# --- Status ----------------------------------------------------------------------------------------------------


def validate_pod_status(pod: pod_v1.Pod) -> Iterator[FieldError]:
    if pod.status.nominated_node_name:
        yield from formats.validate_dns_subdomain(pod.status.nominated_node_name, STATUS.child("nominatedNodeName"))
    yield from _validate_claim_statuses(pod.status, pod.spec)
    if pod.status.extended_resource_claim_status is not None:
        path = STATUS.child("extendedResourceClaimStatus")
        yield from _validate_extended_claim(pod.status.extended_resource_claim_status, pod.spec, path)


def validate_kept_claims(status: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """A pod that has a node keeps the claims that it was bound with. A controller that has not noticed a restored backup would give
    it others, which have no devices.
    """
    now = {each.get("name"): each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for each in old.get("resourceClaimStatuses") or ():
        claim = each.get("resourceClaimName")
        if claim and now.get(each["name"]) != claim:
            path = STATUS.child("resourceClaimStatuses").key(each["name"])
            yield forbidden(path, f"the pod was bound with claim {claim}, which it keeps")


def _validate_claim_statuses(status: pod_v1.PodStatus, spec: pod_v1.PodSpec) -> Iterator[FieldError]:
    known = {claim.name for claim in spec.resource_claims}
    seen: set[str] = set()
    for position, claim in enumerate(status.resource_claim_statuses):
        where = STATUS.child("resourceClaimStatuses").index(position)
        if claim.name not in known:
            yield invalid(where.child("name"), claim.name, "must be one of the names in spec.resourceClaims")
        if claim.name in seen:
            yield duplicate(where.child("name"), claim.name)
        seen.add(claim.name)
        if claim.resource_claim_name is not None:
            yield from formats.validate_dns_subdomain(claim.resource_claim_name, where.child("resourceClaimName"))


def _validate_extended_claim(
    claim: pod_v1.PodExtendedResourceClaimStatus, spec: pod_v1.PodSpec, path: FieldPath
) -> Iterator[FieldError]:
    if not claim.resource_claim_name:
        yield required(path.child("resourceClaimName"))
    else:
        yield from formats.validate_dns_subdomain(claim.resource_claim_name, path.child("resourceClaimName"))
    if not claim.request_mappings:
        yield required(path.child("requestMappings"))
    asked = {container.name: container.resources.requests for container in (*spec.init_containers, *spec.containers)}
    seen: set[tuple[str, str, str]] = set()
    for position, mapping in enumerate(claim.request_mappings):
        where = path.child("requestMappings").index(position)
        if mapping.container_name not in asked:
            yield invalid(where.child("containerName"), mapping.container_name, "must be a container of the pod")
        if mapping.resource_name not in asked.get(mapping.container_name, {}):
            yield invalid(where.child("resourceName"), mapping.resource_name, "must be requested by the container")
        # Kubernetes omits the position here.
        yield from formats.validate_dns_label(mapping.request_name, path.child("requestName"))
        triple = (mapping.container_name, mapping.resource_name, mapping.request_name)
        if triple in seen:
            for field, value in zip(("containerName", "resourceName", "requestName"), triple, strict=True):
                yield duplicate(where.child(field), value)
        seen.add(triple)


# --- Pod topology ---------------------------------------------------------------------------------------------------
# Pod affinity and topology spread constraints.


DO_NOT_SCHEDULE: Final = "DoNotSchedule"
UNSATISFIABLE: Final = (DO_NOT_SCHEDULE, "ScheduleAnyway")
POLICIES: Final = ("Honor", "Ignore")
_POSITIVE: Final = "must be greater than zero"


def validate_pod_affinity(affinity: Affinity, path: FieldPath) -> Iterator[FieldError]:
    for name, side in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        if side is not None:
            yield from _validate_side(side, path.child(name))


def _validate_side(side: PodAffinity, path: FieldPath) -> Iterator[FieldError]:
    where = path.child("requiredDuringSchedulingIgnoredDuringExecution")
    for position, term in enumerate(side.required_during_scheduling_ignored_during_execution):
        yield from _validate_term(term, where.index(position))
    where = path.child("preferredDuringSchedulingIgnoredDuringExecution")
    for position, weighted in enumerate(side.preferred_during_scheduling_ignored_during_execution):
        if not 1 <= weighted.weight <= 100:
            yield invalid(where.index(position).child("weight"), weighted.weight, "must be in the range 1-100")
        yield from _validate_term(weighted.pod_affinity_term, where.index(position).child("podAffinityTerm"))


def _validate_term(term: PodAffinityTerm, path: FieldPath) -> Iterator[FieldError]:
    if term.label_selector is not None:
        yield from _validate_selector(term.label_selector, path.child("labelSelector"))
    if term.namespace_selector is not None:
        yield from _validate_selector(term.namespace_selector, path.child("namespaceSelector"))
    for position, namespace in enumerate(term.namespaces):
        yield from formats.validate_dns_label(namespace, path.child("namespaces").index(position))
    yield from _validate_label_keys(term.match_label_keys, term.label_selector, path.child("matchLabelKeys"))
    yield from _validate_label_keys(term.mismatch_label_keys, term.label_selector, path.child("mismatchLabelKeys"))
    for position, key in enumerate(term.match_label_keys):
        if key in term.mismatch_label_keys:
            yield invalid(
                path.child("matchLabelKeys").index(position), key, "exists in both matchLabelKeys and mismatchLabelKeys"
            )
    yield from _validate_topology_key(term.topology_key, path)


def validate_topology_spread(
    constraints: tuple[TopologySpreadConstraint, ...], path: FieldPath
) -> Iterator[FieldError]:
    known: set[tuple[str, str]] = set()
    for position, each in enumerate(constraints):
        where = path.index(position)
        if each.max_skew <= 0:
            yield invalid(where.child("maxSkew"), each.max_skew, _POSITIVE)
        yield from _validate_topology_key(each.topology_key, where)
        yield from formats.validate_choice(each.when_unsatisfiable, where.child("whenUnsatisfiable"), UNSATISFIABLE)
        pair = (each.topology_key, each.when_unsatisfiable)
        if pair in known:
            yield duplicate(where.child("{topologyKey, whenUnsatisfiable}"), f"{{{', '.join(pair)}}}")
        known.add(pair)
        yield from _validate_min_domains(each, where.child("minDomains"))
        for name, policy in (
            ("nodeAffinityPolicy", each.node_affinity_policy),
            ("nodeTaintsPolicy", each.node_taints_policy),
        ):
            if policy is not None:
                yield from formats.validate_choice(policy, where.child(name), POLICIES)
        yield from _validate_label_keys(each.match_label_keys, each.label_selector, where.child("matchLabelKeys"))
        if each.label_selector is not None:
            yield from _validate_selector(each.label_selector, where.child("labelSelector"))


def _validate_min_domains(constraint: TopologySpreadConstraint, path: FieldPath) -> Iterator[FieldError]:
    least, when = constraint.min_domains, constraint.when_unsatisfiable
    if least is None:
        return
    if least <= 0:
        yield invalid(path, least, _POSITIVE)
    if when != DO_NOT_SCHEDULE:
        yield invalid(path, least, f"can only use minDomains if whenUnsatisfiable={DO_NOT_SCHEDULE}, not {when}")


def _validate_topology_key(key: str, path: FieldPath) -> Iterator[FieldError]:
    if not key:
        yield required(path.child("topologyKey"), "can not be empty")
    else:
        yield from formats.validate_format(key, path.child("topologyKey"), names.label_key)


def _validate_label_keys(
    keys: tuple[str, ...], selector: LabelSelector | None, path: FieldPath
) -> Iterator[FieldError]:
    if keys and selector is None:
        yield forbidden(path, "must not be specified when labelSelector is not set")
    for position, key in enumerate(keys):
        yield from formats.validate_format(key, path.index(position), names.label_key)


def _validate_selector(selector: LabelSelector, path: FieldPath) -> Iterator[FieldError]:
    yield from validate_labels(selector.match_labels, path.child("matchLabels"))
    for position, each in enumerate(selector.match_expressions):
        where = path.child("matchExpressions").index(position)
        match each.operator:
            case "In" | "NotIn":
                if not each.values:
                    yield required(where.child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
            case "Exists" | "DoesNotExist":
                if each.values:
                    message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    yield forbidden(where.child("values"), message)
            case operator:
                yield invalid(where.child("operator"), operator, "not a valid selector operator")
        yield from formats.validate_format(each.key, where.child("key"), names.label_key)


# --- Ephemeral containers -------------------------------------------------------------------------------------------
# Ephemeral containers: they are added to a pod that exists, and never changed or removed.


PATH: Final = FieldPath.of("spec", "ephemeralContainers")
# What makes no sense for a container that runs once, beside others, without a guarantee.
_NOT_ALLOWED: Final = (
    *("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources", "resizePolicy"),
    *("restartPolicy", "restartPolicyRules"),
)

Tree = Mapping[str, Any]


def validate_ephemeral_containers(new: Tree, old: Tree) -> Iterator[FieldError]:
    """The errors of a pod's new spec, given the stored one."""
    containers = _objects(new.get("ephemeralContainers"))
    by_name = {container.get("name"): container for container in containers}
    for before in _objects(old.get("ephemeralContainers")):
        if (after := by_name.get(before.get("name"))) is None:
            yield forbidden(PATH, f"existing ephemeral containers {before.get('name')!r} may not be removed")
        elif after != before:
            yield forbidden(PATH, f"existing ephemeral containers {before.get('name')!r} may not be changed")
    regular = {each.get("name") for name in ("initContainers", "containers") for each in _objects(new.get(name))}
    seen = set(regular)
    for position, container in enumerate(containers):
        yield from _validate(container, regular, seen, PATH.index(position))
        seen.add(container.get("name"))


def _validate(container: Tree, regular: set[Any], seen: set[Any], path: FieldPath) -> Iterator[FieldError]:
    name = str(container.get("name") or "")
    yield from formats.validate_required_label(name, path.child("name"))
    if name and name in seen:
        yield duplicate(path.child("name"), name)
    if not container.get("image"):
        yield required(path.child("image"))
    if (target := container.get("targetContainerName")) and target not in regular:
        yield not_found(path.child("targetContainerName"), target)
    for member in _NOT_ALLOWED:
        if container.get(member):
            yield forbidden(path.child(member), "cannot be set for an Ephemeral Container")


def _objects(value: Any) -> list[Tree]:
    return [item for item in value or () if isinstance(item, dict)]
