"""OpenAPI v3 documents, one for each group and version."""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from msgspec import NODEFAULT, inspect

from dralloc.kube.kind import Kind
from dralloc.kube.review_kinds import ReviewKind
from dralloc.kube.stored_kinds import StoredObject
from dralloc.server.describe.discovery import SUBRESOURCES, group_versions, reviews_of
from dralloc.server.describe.field_descriptions import describe_field, describe_type
from dralloc.server.documents.json_documents import Document
from dralloc.server.documents.merge_rules import MergeRule, merge_rule

PATCH_TYPES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def openapi_index(kinds: Sequence[Kind], hashes: Mapping[str, str]) -> Document:
    """The document at `/openapi/v3`: the URLs of all documents, with hashes that make them cacheable."""
    places = [document_place(group, version) for group, version in group_versions(kinds)]
    return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}?hash={hashes[place]}"} for place in places}}


def document_place(group: str, version: str) -> str:
    """The path of a document below `/openapi/v3/`."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def openapi_document(kinds: Sequence[Kind], group: str, version: str, product_version: str) -> Document:
    writer = SchemaWriter(version)
    served = sorted(
        (kind for kind in kinds if kind.group == group and kind.served(version)), key=lambda kind: kind.plural
    )
    paths: dict[str, Document] = {}
    for kind in served:
        _write_kind(writer, kind, version)
        paths.update(_paths(writer, kind, version))
    for review in reviews_of(group, version):
        paths.update([_review_path(writer, review)])
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": product_version},
        "paths": paths,
        "components": {"schemas": writer.schemas},
    }


# --- kinds --------------------------------------------------------------------------------------------------


def _write_kind(writer: SchemaWriter, kind: Kind, version: str) -> None:
    name = _schema(writer, kind, version)
    writer.schemas[name] = {**writer.schemas[name], **_group_version_kind([kind.kind], kind, version)}
    writer.schemas[f"{name}List"] = {
        "description": f"Objects of kind {kind.kind}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [_reference(LIST_META)]},
            "items": {"type": "array", "items": {"allOf": [_reference(name)]}},
        },
        **_group_version_kind([kind.list_kind], kind, version),
    }


def _schema(writer: SchemaWriter, kind: Kind, version: str) -> str:
    served = kind.served(version)
    assert served is not None, f"{kind.kind} is not served in {version}"
    return writer.write(kind.view or served.wire_type, merge_rule(kind.group, kind.kind), partial=kind.view is not None)


def _group_version_kind(names: Sequence[str], kind: Kind | ReviewKind, version: str) -> Document:
    entries = [{"group": kind.group, "version": version, "kind": name} for name in names]
    return {"x-kubernetes-group-version-kind": entries}


def _reference(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


# --- paths --------------------------------------------------------------------------------------------------


def _paths(writer: SchemaWriter, kind: Kind, version: str) -> Iterator[tuple[str, Document]]:
    operations = _Operations(_schema(writer, kind, version), kind, version)
    root = f"/{document_place(kind.group, version)}"
    if kind.namespaced:
        yield f"{root}/{kind.plural}", {"get": operations.collection("list", "ForAllNamespaces")}
        root = f"{root}/namespaces/{{namespace}}"
    collection, item = f"{root}/{kind.plural}", f"{root}/{kind.plural}/{{name}}"
    place = [_NAMESPACE] if kind.namespaced else []
    yield (
        collection,
        {
            "get": operations.collection("list"),
            "post": operations.write("post"),
            "delete": operations.collection("deletecollection"),
            "parameters": place,
        },
    )
    yield (
        item,
        {
            "get": operations.read(),
            "put": operations.write("put"),
            "patch": operations.patch(),
            "delete": operations.delete(),
            "parameters": [*place, _NAME],
        },
    )
    for name in sorted(kind.subresources):
        verbs = SUBRESOURCES[name].verbs
        made = {
            "get": operations.read(name) if "get" in verbs else None,
            "post": operations.write("post", name) if "create" in verbs else None,
            "put": operations.write("put", name) if "update" in verbs else None,
            "patch": operations.patch(name) if "patch" in verbs else None,
        }
        present = {method: operation for method, operation in made.items() if operation}
        yield f"{item}/{name}", {**present, "parameters": [*place, _NAME]}


def _review_path(writer: SchemaWriter, review: ReviewKind) -> tuple[str, Document]:
    """The path at which a review is created; its fields are not described."""
    schema = f"io.k8s.api.{review.group.partition('.')[0]}.{review.version}.{review.kind}"
    writer.schemas[schema] = {
        "description": describe_type(review.kind),
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        **_group_version_kind([review.kind], review, review.version),
    }
    root = f"/{document_place(review.group, review.version)}" + ("/namespaces/{namespace}" if review.namespaced else "")
    operation = _Operations(schema, review, review.version).write("post")
    return f"{root}/{review.plural}", {"post": operation, "parameters": [_NAMESPACE] if review.namespaced else []}


class _Operations:
    def __init__(self, schema: str, kind: Kind | ReviewKind, version: str) -> None:
        self._schema = schema
        self._kind = kind
        self._version = version

    def collection(self, action: str, suffix: str = "") -> Document:
        answer = f"{self._schema}List" if action == "list" else STATUS
        return self._operation(action, answer, _LIST_PARAMETERS, suffix=suffix)

    def read(self, part: str = "") -> Document:
        return self._operation("get", self._schema, (), suffix=part.capitalize())

    def write(self, action: str, part: str = "") -> Document:
        operation = self._operation(action, self._schema, _WRITE_PARAMETERS, suffix=part.capitalize())
        sent = {"x-kubernetes-preserve-unknown-fields": True} if part in _ACTIONS else _reference(self._schema)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": sent}}}
        return operation

    def patch(self, part: str = "") -> Document:
        operation = self._operation("patch", self._schema, _PATCH_PARAMETERS, suffix=part.capitalize())
        patch = {"schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(PATCH_TYPES, patch)}
        return operation

    def delete(self) -> Document:
        operation = self._operation("delete", STATUS, _DELETE_PARAMETERS)
        operation["requestBody"] = {"content": {"application/json": {"schema": _reference(DELETE_OPTIONS)}}}
        return operation

    def _operation(self, action: str, answer: str, parameters: Sequence[Document], suffix: str = "") -> Document:
        kind, version = self._kind, self._version
        tag = f"{kind.group.partition('.')[0] or 'core'}_{version}"
        ok = {"description": "OK", "content": {"application/json": {"schema": _reference(answer)}}}
        return {
            "tags": [tag],
            "operationId": f"{action}{tag.replace('_', '').capitalize()}{kind.kind}{suffix}",
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": kind.group, "version": version, "kind": kind.kind},
            "parameters": list(parameters),
            "responses": {"200": ok, "401": {"description": "Unauthorized"}},
        }


_ACTIONS: Final = frozenset(name for name, part in SUBRESOURCES.items() if part.kind)


def _parameter(name: str, description: str, type_: str = "string", *, within: str = "query") -> dict[str, Any]:
    schema = {"type": type_, "uniqueItems": True}
    parameter: dict[str, Any] = {"name": name, "in": within, "description": description, "schema": schema}
    return {**parameter, "required": True} if within == "path" else parameter


_NAME: Final = _parameter("name", "The object's name.", within="path")
_NAMESPACE: Final = _parameter("namespace", "The object's namespace.", within="path")
_DRY_RUN: Final = _parameter("dryRun", "`All` validates the request without storing anything.")
_FIELD_MANAGER: Final = _parameter("fieldManager", "The owner of the written fields.")
_FIELD_VALIDATION: Final = _parameter(
    "fieldValidation", "How unknown fields are handled: Ignore, Warn (the default) or Strict, which refuses them."
)
_WRITE_PARAMETERS: Final = (_DRY_RUN, _FIELD_MANAGER, _FIELD_VALIDATION)
_PATCH_PARAMETERS: Final = (
    *_WRITE_PARAMETERS,
    _parameter("force", "Take conflicting fields from other managers.", "boolean"),
)
_DELETE_PARAMETERS: Final = (
    _DRY_RUN,
    _parameter("gracePeriodSeconds", "The grace period of the deletion.", "integer"),
    _parameter("orphanDependents", "Deprecated: use propagationPolicy.", "boolean"),
    _parameter("propagationPolicy", "How dependents are deleted: Orphan, Background or Foreground."),
)
_LIST_PARAMETERS: Final = (
    _parameter("allowWatchBookmarks", "Send bookmarks with the current resource version.", "boolean"),
    _parameter("continue", "Leads to the next page."),
    _parameter("fieldSelector", "Only objects with these fields."),
    _parameter("labelSelector", "Only objects with these labels."),
    _parameter("limit", "The maximum number of objects in a page.", "integer"),
    _parameter("resourceVersion", "The resource version to list at or to watch from."),
    _parameter("resourceVersionMatch", "Exact or NotOlderThan."),
    _parameter("sendInitialEvents", "Start a watch with the current objects.", "boolean"),
    _parameter("timeoutSeconds", "When to end a watch.", "integer"),
    _parameter("watch", "Send changes as they happen.", "boolean"),
)


# --- Openapi schemas ------------------------------------------------------------------------------------------------
# OpenAPI schemas of objects, derived from the wire types and the merge rules.
#
# Types that are modelled in part are marked, so that tools preserve unknown fields.


_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
LIST_META: Final = f"{_META}.ListMeta"
DELETE_OPTIONS: Final = f"{_META}.DeleteOptions"
STATUS: Final = f"{_META}.Status"

_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_INT32_MAX: Final = 2**31 - 1
_NO_RULE: Final = MergeRule()

# Schemas without a wire type.
FIXED_SCHEMAS: Final[Document] = {
    _QUANTITY: {
        "description": "An amount, such as 10Gi, 500m or 4.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    _RAW: {"description": "Any JSON object.", "type": "object", "x-kubernetes-preserve-unknown-fields": True},
    LIST_META: {
        "description": "Where a list stands.",
        "type": "object",
        "properties": {
            "continue": {"type": "string", "description": "Leads to the next page."},
            "remainingItemCount": {
                "type": "integer",
                "format": "int64",
                "description": "The number of objects after this page.",
            },
            "resourceVersion": {"type": "string", "description": "The resource version of the list."},
            "selfLink": {"type": "string", "description": "Not in use any more."},
        },
    },
    STATUS: {
        "description": "How a request went.",
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": f"#/components/schemas/{LIST_META}"},
            "status": {"type": "string", "description": "Success or Failure."},
            "message": {"type": "string", "description": "What went wrong, in words."},
            "reason": {"type": "string", "description": "A machine-readable reason of the failure."},
            "details": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "code": {"type": "integer", "format": "int32", "description": "The HTTP code."},
        },
    },
    DELETE_OPTIONS: {
        "description": "The options of a deletion.",
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "dryRun": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
            "gracePeriodSeconds": {"type": "integer", "format": "int64"},
            "orphanDependents": {"type": "boolean"},
            "preconditions": {
                "type": "object",
                "properties": {"uid": {"type": "string"}, "resourceVersion": {"type": "string"}},
            },
            "propagationPolicy": {"type": "string"},
        },
    },
}


class SchemaWriter:
    """Writes the schemas of one document, each type once."""

    def __init__(self, version: str) -> None:
        self._version = version
        self.schemas: dict[str, Document] = dict(FIXED_SCHEMAS)

    def write(self, wire_type: type, rule: MergeRule, *, partial: bool = False) -> str:
        """Write the schemas of a type and of its parts; returns the type's schema name."""
        name = _schema_name(wire_type, self._version)
        if name not in self.schemas:
            # Metadata is modelled completely in every kind.
            self.schemas[name] = self._object(wire_type, rule, partial and not name.startswith(_META))
        return name

    def _object(self, wire_type: type, rule: MergeRule, partial: bool) -> Document:
        info = inspect.type_info(wire_type)
        assert isinstance(info, inspect.StructType), f"not a wire type: {wire_type}"
        properties = {
            field.encode_name: self._property(wire_type, field, rule.members.get(field.encode_name, _NO_RULE), partial)
            for field in info.fields
        }
        schema: Document = {"type": "object", "properties": properties}
        if description := describe_type(wire_type.__name__) or _docstring(wire_type):
            schema["description"] = description
        if required := [field.encode_name for field in info.fields if _is_required(field)]:
            schema["required"] = required
        if rule.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        if partial:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return schema

    def _property(self, wire_type: type, field: inspect.Field, rule: MergeRule, partial: bool) -> Document:
        schema = self._value(field.type, rule, partial)
        if "$ref" in schema:
            # In OpenAPI 3.0 nothing may stand beside a reference, so `allOf` wraps it.
            schema = {"allOf": [schema]}
        if description := describe_field(wire_type.__name__, field.encode_name):
            schema["description"] = description
        return {**schema, **_list_extensions(rule)} if schema.get("type") == "array" else schema

    def _value(self, info: inspect.Type, rule: MergeRule, partial: bool) -> Document:
        match info:
            case inspect.UnionType(types=types):
                (present,) = [member for member in types if not isinstance(member, inspect.NoneType)]
                return self._value(present, rule, partial)
            case inspect.StructType(cls=cls):
                return {"$ref": f"#/components/schemas/{self.write(cls, rule, partial=partial)}"}
            case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
                element = MergeRule(members=rule.members, atomic=rule.atomic_elements)
                return {"type": "array", "items": self._value(item, element, partial)}
            case inspect.DictType(value_type=value):
                schema: Document = {"type": "object", "additionalProperties": self._value(value, _NO_RULE, partial)}
                return {**schema, "x-kubernetes-map-type": "atomic"} if rule.atomic else schema
            case inspect.StrType():
                return {"type": "string"}
            case inspect.BytesType():
                return {"type": "string", "format": "byte"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case inspect.IntType(le=largest):
                return {"type": "integer", "format": "int32" if largest == _INT32_MAX else "int64"}
            case inspect.CustomType():
                return {"$ref": f"#/components/schemas/{_QUANTITY}"}
            case inspect.RawType():
                return {"$ref": f"#/components/schemas/{_RAW}"}
            case _:
                return {"x-kubernetes-preserve-unknown-fields": True}


def _list_extensions(rule: MergeRule) -> dict[str, Any]:
    extensions: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
    if rule.keys:
        extensions = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(rule.keys)}
    elif rule.is_set:
        extensions = {"x-kubernetes-list-type": "set"}
    if rule.strategic:
        extensions["x-kubernetes-patch-strategy"] = "merge,retainKeys" if rule.retains_keys else "merge"
    if rule.strategic_key:
        extensions["x-kubernetes-patch-merge-key"] = rule.strategic_key
    return extensions


def _is_required(field: inspect.Field) -> bool:
    """True if the field is encoded even when it is an empty string: such fields are required."""
    factory = field.default_factory
    return factory is not NODEFAULT and factory() == ""


@cache
def _schema_name(wire_type: type, version: str) -> str:
    """The schema name of the type in Kubernetes' style."""
    module, name = wire_type.__module__.rpartition(".")[2], wire_type.__name__
    # Types of the core group live in modules of their own.
    if module == "pod_v1" or name.startswith("NodeSelector"):
        return f"io.k8s.api.core.v1.{name}"
    if module == "meta_v1":
        return f"{_META}.{name}"
    if issubclass(wire_type, StoredObject):
        return f"io.k8s.api.{wire_type.GROUP}.{version}.{name}"
    group, _, fixed_version = module.rpartition("_")
    # Versions of the resource group share a module.
    return f"io.k8s.api.{group or 'resource'}.{version if group in ('', 'resource') else fixed_version}.{name}"


def _docstring(wire_type: type) -> str:
    # Skips inherited docstrings, and the signatures that msgspec generates.
    own = vars(wire_type).get("__doc__") or ""
    return " ".join(python_inspect.cleandoc(own).split()) if not own.startswith(wire_type.__name__ + "(") else ""
