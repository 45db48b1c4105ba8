"""What every API object has: type, metadata, owner references, conditions, selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field

from dralloc.kube.wire import Int64, Time, Wire, printed


class OwnerReference(Wire):
    api_version: str = printed("")
    kind: str = printed("")
    name: str = printed("")
    uid: str = printed("")
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[dict[str, Any], ...] = ()


class Condition(Wire):
    """An aspect of the state of an object: `status` is `True`, `False` or `Unknown`; `reason` is one word for programs."""

    type: str = printed("")
    status: str = printed("")
    observed_generation: Int64 = 0
    last_transition_time: Time | None = printed(None)
    reason: str = printed("")
    message: str = printed("")


class LabelSelectorRequirement(Wire):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.operator == "DoesNotExist" and self.key not in labels


class LabelSelector(Wire):
    """An empty selector selects everything."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return self.match_labels.items() <= labels.items() and all(
            requirement.holds(labels) for requirement in self.match_expressions
        )


class NodeSelectorRequirement(Wire):
    key: str = printed("")
    operator: str = printed("")
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = printed(None)


class ApiObject(Wire):
    """Any object of the API. Subclasses add `spec` and `status`."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
