"""What every API object carries: type, metadata, owner references, conditions."""

from __future__ import annotations

from typing import Any

from msgspec import field

from dralloc.api.wire import Int64, Time, Wire, printed


class OwnerReference(Wire):
    api_version: str = printed("")
    kind: str = printed("")
    name: str = printed("")
    uid: str = printed("")
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    self_link: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: Int64 | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None
    managed_fields: tuple[dict[str, Any], ...] | None = None


class Condition(Wire):
    type: str = printed("")
    status: str = printed("")
    observed_generation: Int64 | None = None
    last_transition_time: Time | None = printed(None)
    reason: str = printed("")
    message: str = printed("")


class NodeSelectorRequirement(Wire):
    key: str = printed("")
    operator: str = printed("")
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Wire):
    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class NodeSelector(Wire):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = printed(None)


class ApiObject(Wire):
    """Any object of the API. Subclasses add `spec` and `status`."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
