"""OpenAPI v3 documents, one for each group and version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dralloc.api.kind import Kind
from dralloc.api.review_kinds import ReviewKind
from dralloc.apiserver.description.discovery import SUBRESOURCES, group_versions, reviews_of
from dralloc.apiserver.description.field_descriptions import describe_type
from dralloc.apiserver.description.openapi_schemas import DELETE_OPTIONS, LIST_META, STATUS, SchemaWriter
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.documents.merge_rules import merge_rule

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
