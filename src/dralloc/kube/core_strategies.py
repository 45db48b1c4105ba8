"""The write strategies of the kinds that we model only in part."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from msgspec.structs import replace

from dralloc.kube import rbac_v1
from dralloc.kube.apps_v1 import DaemonSet, Deployment
from dralloc.kube.coordination_v1 import Lease
from dralloc.kube.core_v1 import ConfigMap, Event, Namespace, Node, ResourceQuota, Secret, Service, ServiceAccount
from dralloc.kube.field_defaults import DEFAULTS, Rows, with_field_defaults
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.node_taints import NOT_READY, UNREACHABLE
from dralloc.kube.pod_defaults import default_pod_spec, quality_of_service
from dralloc.kube.pod_v1 import PENDING, Pod
from dralloc.kube.rbac_v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from dralloc.kube.scheduling_v1 import PREEMPT_LOWER, PriorityClass
from dralloc.kube.storage_v1 import CSINode
from dralloc.kube.strategy import StatusStrategy, with_generation
from dralloc.kube.unstructured_object import UnstructuredObject, view
from dralloc.kube.validation import configuration_data, core, pod, roles
from dralloc.kube.validation.core import validate_priority_class, validate_priority_class_update
from dralloc.kube.validation.metadata import validate_metadata, validate_metadata_update
from dralloc.kube.validation.pod import SPEC, validate_kept_claims, validate_pod, validate_pod_status
from dralloc.primitives import names
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldError, forbidden

ViewT = TypeVar("ViewT", bound=ApiObject)


def no_rules(*_: Any) -> Iterator[FieldError]:
    """Everything is valid."""
    return iter(())


@dataclass(frozen=True, slots=True)
class Rules(Generic[ViewT]):
    """The view type of a kind, and its validation functions besides those of metadata.

    `spec` applies to every write, `create` and `update` only to those; `status` applies to writes of the status.
    """

    view_type: type[ViewT]
    spec: Callable[[ViewT], Iterator[FieldError]] = no_rules
    create: Callable[[ViewT], Iterator[FieldError]] = no_rules
    update: Callable[[ViewT, ViewT], Iterator[FieldError]] = no_rules
    status: Callable[[ViewT], Iterator[FieldError]] | None = None
    namespaced: bool = True
    name_faults: Callable[[str], tuple[str, ...]] = names.dns_subdomain


def with_members(obj: UnstructuredObject, **members: Any) -> UnstructuredObject:
    """Returns the object with these members; a member that is None is left out."""
    content = {name: value for name, value in {**obj.content, **members}.items() if value is not None}
    return replace(obj, content=content)


class UnstructuredStrategy(StatusStrategy[UnstructuredObject]):
    """A kind with a spec, and optionally a status that only its own subresource writes."""

    rules: ClassVar[Rules[Any]]
    has_generation: ClassVar[bool] = False
    defaults: ClassVar[Rows] = ()

    def default(self, obj: UnstructuredObject) -> UnstructuredObject:
        return replace(obj, content=with_field_defaults(obj.content, self.defaults)) if self.defaults else obj

    def prepare_create(self, new: UnstructuredObject) -> UnstructuredObject:
        if self.rules.status is not None:
            new = with_members(new, status=self.initial_status(new))
        return with_generation(new, 1) if self.has_generation else new

    def initial_status(self, new: UnstructuredObject) -> dict[str, Any]:  # noqa: ARG002 - for subclasses
        """Returns the status of a new object, regardless of what its author wrote."""
        return {}

    def validate_create(self, new: UnstructuredObject) -> Iterator[FieldError]:
        viewed = view(new, self.rules.view_type)
        namespaced, name_faults = self.rules.namespaced, self.rules.name_faults
        yield from validate_metadata(new.metadata, namespaced=namespaced, name_faults=name_faults)
        yield from self.rules.spec(viewed)
        yield from self.rules.create(viewed)

    def prepare_update(self, new: UnstructuredObject, old: UnstructuredObject) -> UnstructuredObject:
        if self.rules.status is not None:
            new = with_members(new, status=old.content.get("status"))
        if not self.has_generation:
            return new
        return with_generation(new, old.metadata.generation + (new.content.get("spec") != old.content.get("spec")))

    def validate_update(self, new: UnstructuredObject, old: UnstructuredObject) -> Iterator[FieldError]:
        viewed = view(new, self.rules.view_type)
        yield from validate_metadata_update(new.metadata, old.metadata)
        yield from self.rules.spec(viewed)
        yield from self.rules.update(viewed, view(old, self.rules.view_type))

    def prepare_status(self, new: UnstructuredObject, old: UnstructuredObject) -> UnstructuredObject:
        return replace(new, content={**old.content, "status": new.content.get("status") or {}})

    def validate_status(self, new: UnstructuredObject, old: UnstructuredObject) -> Iterator[FieldError]:
        assert self.rules.status is not None, "only kinds with a status have status writes"
        yield from validate_metadata_update(new.metadata, old.metadata)
        yield from self.rules.status(view(new, self.rules.view_type))


class NodeStrategy(UnstructuredStrategy):
    """A node registers itself, including its status."""

    rules = Rules(Node, core.validate_node_taints, status=core.validate_node_taints, namespaced=False)

    def initial_status(self, new: UnstructuredObject) -> dict[str, Any]:
        return cast("dict[str, Any]", new.content.get("status") or {})

    def prepare_status(self, new: UnstructuredObject, old: UnstructuredObject) -> UnstructuredObject:
        """Keeps pods away from a node that reports that it is not ready.

        Schedulers read the taint, and a node may not taint itself. In Kubernetes a controller follows the condition.
        """
        new = super().prepare_status(new, old)
        stated = [each for each in new.member("status").get("conditions") or () if each.get("type") == "Ready"]
        if not stated:
            return new
        return _with_taint(new, _TAINT_OF_READY.get(stated[-1].get("status", "")))


# By the status of the condition Ready.
_TAINT_OF_READY: Final = {"False": NOT_READY, "Unknown": UNREACHABLE}


def _with_taint(node: UnstructuredObject, wanted: str | None) -> UnstructuredObject:
    """The node with the wanted one of the taints that follow its condition, and without the others."""
    before = node.member("spec").get("taints") or []
    ours = {key for key in _TAINT_OF_READY.values() if key != wanted}
    taints = [each for each in before if each.get("effect") != "NoSchedule" or each.get("key") not in ours]
    if wanted and not any((each.get("key"), each.get("effect")) == (wanted, "NoSchedule") for each in taints):
        taints.append({"key": wanted, "effect": "NoSchedule"})
    if taints == before:
        return node
    spec = {name: value for name, value in node.member("spec").items() if name != "taints"}
    return with_members(node, spec={**spec, "taints": taints} if taints else spec or None)


class NamespaceStrategy(UnstructuredStrategy):
    """A namespace; its finalizer keeps it until everything in it is deleted."""

    rules = Rules(Namespace, status=no_rules, namespaced=False, name_faults=names.dns_label)

    def prepare_create(self, new: UnstructuredObject) -> UnstructuredObject:
        finalizers = dict.fromkeys([*(new.member("spec").get("finalizers") or []), "kubernetes"])
        new = with_members(new, spec={**new.member("spec"), "finalizers": list(finalizers)})
        return _with_name_label(super().prepare_create(new))

    def initial_status(self, new: UnstructuredObject) -> dict[str, Any]:  # noqa: ARG002
        return {"phase": "Active"}

    def prepare_update(self, new: UnstructuredObject, old: UnstructuredObject) -> UnstructuredObject:
        new = super().prepare_update(with_members(new, spec=old.content.get("spec")), old)
        return _with_name_label(new)


def _with_name_label(namespace: UnstructuredObject) -> UnstructuredObject:
    """Selectors find a namespace by its name under this label."""
    labels = {**namespace.metadata.labels, "kubernetes.io/metadata.name": namespace.metadata.name}
    return replace(namespace, metadata=replace(namespace.metadata, labels=labels))


class ResourceQuotaStrategy(UnstructuredStrategy):
    rules = Rules(
        ResourceQuota,
        core.validate_resource_quota_spec,
        update=core.validate_resource_quota_update,
        status=core.validate_resource_quota_status,
    )


class EventStrategy(UnstructuredStrategy):
    rules = Rules(Event, create=core.validate_event)


class LeaseStrategy(UnstructuredStrategy):
    rules = Rules(Lease, core.validate_lease)


class PriorityClassStrategy(UnstructuredStrategy):
    rules = Rules(
        PriorityClass, create=validate_priority_class, update=validate_priority_class_update, namespaced=False
    )
    has_generation = True

    def default(self, obj: UnstructuredObject) -> UnstructuredObject:
        return replace(obj, content={"value": 0, "preemptionPolicy": PREEMPT_LOWER, **obj.content})


class ServiceAccountStrategy(UnstructuredStrategy):
    rules = Rules(ServiceAccount)


class ServiceStrategy(UnstructuredStrategy):
    rules = Rules(Service, status=no_rules, name_faults=names.dns_label)
    defaults = DEFAULTS["", "Service"]


class CSINodeStrategy(UnstructuredStrategy):
    rules = Rules(CSINode, namespaced=False)


class ConfigMapStrategy(UnstructuredStrategy):
    rules = Rules(ConfigMap, configuration_data.validate_config_map, update=configuration_data.validate_immutable_data)


class SecretStrategy(UnstructuredStrategy):
    rules = Rules(Secret, configuration_data.validate_secret, update=configuration_data.validate_secret_update)

    def default(self, obj: UnstructuredObject) -> UnstructuredObject:
        texts = {name: b64encode(text.encode()).decode() for name, text in obj.member("stringData").items()}
        data = {**obj.member("data"), **texts} or None
        return with_members(obj, type=obj.content.get("type") or "Opaque", data=data, stringData=None)


class DaemonSetStrategy(UnstructuredStrategy):
    rules = Rules(DaemonSet, core.validate_workload, update=core.validate_workload_update, status=no_rules)
    has_generation = True
    defaults = DEFAULTS["apps", "DaemonSet"]


class DeploymentStrategy(UnstructuredStrategy):
    rules = Rules(Deployment, core.validate_workload, update=core.validate_workload_update, status=no_rules)
    has_generation = True
    defaults = DEFAULTS["apps", "Deployment"]


class RoleStrategy(UnstructuredStrategy):
    rules = Rules(Role, roles.validate_role, name_faults=names.path_segment)

    def default(self, obj: UnstructuredObject) -> UnstructuredObject:
        # Kubernetes prints a role without rules with null.
        return replace(obj, content={**obj.content, "rules": obj.content.get("rules") or None})


class ClusterRoleStrategy(RoleStrategy):
    rules = Rules(ClusterRole, roles.validate_role, namespaced=False, name_faults=names.path_segment)


class RoleBindingStrategy(UnstructuredStrategy):
    rules = Rules(
        RoleBinding,
        create=roles.validate_binding,
        update=roles.validate_binding_update,
        name_faults=names.path_segment,
    )

    def default(self, obj: UnstructuredObject) -> UnstructuredObject:
        """Roles, users and groups are of the group of this API if the binding does not say so."""
        ref = obj.member("roleRef")
        subjects = [
            {**subject, "apiGroup": subject.get("apiGroup") or rbac_v1.GROUP}
            if subject.get("kind") in ("User", "Group")
            else subject
            for subject in obj.content.get("subjects") or ()
        ]
        role_ref = {**ref, "apiGroup": ref.get("apiGroup") or rbac_v1.GROUP}
        return with_members(obj, roleRef=role_ref, subjects=subjects or None)


class ClusterRoleBindingStrategy(RoleBindingStrategy):
    rules = Rules(
        ClusterRoleBinding,
        create=roles.validate_binding,
        update=roles.validate_binding_update,
        namespaced=False,
        name_faults=names.path_segment,
    )


# Members of a pod's spec with their gates. EvictionRequestAPI is off in Kubernetes 1.37, and does not exist here.
GATED_MEMBERS: Final = {"schedulingGroup": "GenericWorkload", "evictionResponders": "EvictionRequestAPI"}


def without_gated_members(spec: dict[str, Any], old: dict[str, Any], gates: FeatureGates) -> dict[str, Any]:
    """Returns the spec of a pod without the members whose gate is off, unless the stored pod has them."""
    dropped = [
        name
        for name, gate in GATED_MEMBERS.items()
        if name in spec and gate not in gates.enabled and old.get(name) is None
    ]
    return {name: value for name, value in spec.items() if name not in dropped} if dropped else spec


_USUAL_PRIORITY: Final = {"priority": 0, "preemptionPolicy": PREEMPT_LOWER}


class PodStrategy(UnstructuredStrategy):
    rules = Rules(Pod, validate_pod, status=validate_pod_status)
    has_generation = True
    parts = frozenset({"ephemeralcontainers"})

    def default(self, obj: UnstructuredObject) -> UnstructuredObject:
        return with_members(obj, spec=default_pod_spec(obj.member("spec")))

    def prepare_create(self, new: UnstructuredObject) -> UnstructuredObject:
        """A pod without a priority, because no priority class applied, gets the default priority."""
        spec = without_gated_members(new.member("spec"), {}, self.admission.gates)
        return super().prepare_create(with_members(new, spec={**_USUAL_PRIORITY, **spec}))

    def prepare_update(self, new: UnstructuredObject, old: UnstructuredObject) -> UnstructuredObject:
        before = {name: value for name, value in old.member("spec").items() if name in _USUAL_PRIORITY}
        spec = without_gated_members(new.member("spec"), old.member("spec"), self.admission.gates)
        return super().prepare_update(with_members(new, spec={**before, **spec}), old)

    def initial_status(self, new: UnstructuredObject) -> dict[str, Any]:
        return {"phase": PENDING, "qosClass": quality_of_service(view(new, Pod).spec)}

    def validate_create(self, new: UnstructuredObject) -> Iterator[FieldError]:
        yield from super().validate_create(new)
        if new.member("spec").get("ephemeralContainers"):
            yield forbidden(pod.PATH, "cannot be set on create")

    def validate_part(self, part: str, new: UnstructuredObject, old: UnstructuredObject) -> Iterator[FieldError]:  # noqa: ARG002 - there is one
        yield from validate_metadata_update(new.metadata, old.metadata)
        yield from pod.validate_ephemeral_containers(new.member("spec"), old.member("spec"))

    def validate_status(self, new: UnstructuredObject, old: UnstructuredObject) -> Iterator[FieldError]:
        yield from super().validate_status(new, old)
        if old.member("spec").get("nodeName"):
            yield from validate_kept_claims(new.member("status"), old.member("status"))

    def validate_update(self, new: UnstructuredObject, old: UnstructuredObject) -> Iterator[FieldError]:
        yield from super().validate_update(new, old)
        if _fixed(new, old) != _fixed(old, old):
            yield forbidden(SPEC, f"only these fields of a pod may change: {CHANGEABLE}")

    def prepare_status(self, new: UnstructuredObject, old: UnstructuredObject) -> UnstructuredObject:
        """Keeps status fields of disabled features only if the stored status has them already."""
        new = super().prepare_status(new, old)
        status = dict(new.member("status"))
        for gate, member in (
            ("DRAExtendedResource", "extendedResourceClaimStatus"),
            ("DRANodeAllocatableResources", "nodeAllocatableResourceClaimStatuses"),
        ):
            if gate not in self.admission.gates and not old.member("status").get(member):
                status.pop(member, None)
        return with_members(new, status=status)


CHANGEABLE: Final = (
    "container images, tolerations (additions only), activeDeadlineSeconds, "
    "terminationGracePeriodSeconds (from a negative value to 1), schedulingGates (removals only)"
)


def _fixed(pod: UnstructuredObject, old: UnstructuredObject) -> dict[str, Any]:
    """Returns the immutable part of a pod's spec, given the stored pod."""
    spec, before = dict(pod.member("spec")), old.member("spec")
    spec.pop("activeDeadlineSeconds", None)
    for member in ("containers", "initContainers"):
        spec[member] = [{**container, "image": ""} for container in spec.get(member) or []]
    tolerations, gates = spec.pop("tolerations", None) or [], spec.pop("schedulingGates", None) or []
    spec["removed tolerations"] = [kept for kept in before.get("tolerations") or [] if kept not in tolerations]
    spec["added gates"] = [gate for gate in gates if gate not in (before.get("schedulingGates") or [])]
    if spec.get("terminationGracePeriodSeconds") == 1 and (before.get("terminationGracePeriodSeconds") or 0) < 0:
        spec["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    return spec
