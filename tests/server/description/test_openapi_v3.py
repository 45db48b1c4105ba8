"""OpenAPI documents: complete, consistent with discovery, and with what kubectl reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dralloc.kube.registry import KINDS
from dralloc.server.describe.discovery import SUBRESOURCES, api_resource_list, group_versions
from dralloc.server.describe.openapi_v3 import document_place, openapi_document, openapi_index
from dralloc.server.documents.json_documents import Document
from dralloc.server.documents.merge_rules import MergeRule, merge_rule

DRA = "resource.k8s.io"
DOCUMENTS = {
    (group, version): openapi_document(KINDS, group, version, "v0") for group, version in group_versions(KINDS)
}
SCHEMA = "#/components/schemas/"


def values(document: Any) -> Iterator[Any]:
    yield document
    for value in document.values() if isinstance(document, dict) else document if isinstance(document, list) else ():
        yield from values(value)


def kind_schema(group: str, version: str, kind: str) -> Document:
    wanted = [{"group": group, "version": version, "kind": kind}]
    schemas = DOCUMENTS[group, version]["components"]["schemas"].values()
    (found,) = [schema for schema in schemas if schema.get("x-kubernetes-group-version-kind") == wanted]
    return dict(found)


def schema_at(group: str, version: str, kind: str, *path: str) -> Document:
    """The schema of a field, followed through references and into list elements."""
    schemas = DOCUMENTS[group, version]["components"]["schemas"]
    schema = kind_schema(group, version, kind)
    for step in path:
        schema = resolve(schema, schemas)["properties"][step]
    return schema


def resolve(schema: Document, schemas: Document) -> Document:
    if schema.get("type") == "array":
        schema = schema["items"]
    if "allOf" in schema:
        (schema,) = schema["allOf"]
    return schemas[schema["$ref"].removeprefix(SCHEMA)] if "$ref" in schema else schema


@pytest.mark.parametrize("place", DOCUMENTS, ids="/".join)
def test_every_reference_resolves(place: tuple[str, str]) -> None:
    document = DOCUMENTS[place]
    references = {value["$ref"] for value in values(document) if isinstance(value, dict) and "$ref" in value}
    assert references
    assert references <= {SCHEMA + name for name in document["components"]["schemas"]}


@pytest.mark.parametrize("place", DOCUMENTS, ids="/".join)
def test_paths_agree_with_discovery(place: tuple[str, str]) -> None:
    group, version = place
    listed = api_resource_list(KINDS, group, version)
    assert listed is not None
    paths = DOCUMENTS[place]["paths"]
    methods = {"create": "post", "get": "get", "patch": "patch", "update": "put", "delete": "delete"}
    for entry in listed["resources"]:
        name, _, part = entry["name"].partition("/")
        root = f"/{document_place(group, version)}" + ("/namespaces/{namespace}" if entry["namespaced"] else "")
        item = paths.get(f"{root}/{name}/{{name}}/{part}" if part else f"{root}/{name}/{{name}}", {})
        collection = {} if part else paths[f"{root}/{name}"]
        for verb in entry["verbs"]:
            method = methods.get(verb)
            assert method is None or method in (collection if verb == "create" and not part else item), (
                entry["name"],
                verb,
            )


def test_operation_ids_are_unique() -> None:
    for document in DOCUMENTS.values():
        names = [
            value["operationId"] for value in values(document) if isinstance(value, dict) and "operationId" in value
        ]
        assert len(names) == len(set(names))


def test_patches_have_the_parameters_that_kubectl_needs() -> None:
    patches = [
        value["patch"] for value in values(list(DOCUMENTS.values())) if isinstance(value, dict) and "patch" in value
    ]
    assert len(patches) >= sum(len(kind.versions) for kind in KINDS)
    for patch in patches:
        assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= {
            parameter["name"] for parameter in patch["parameters"]
        }
        assert patch["x-kubernetes-group-version-kind"].keys() == {"group", "version", "kind"}


def test_every_kind_and_its_list_are_named() -> None:
    for kind in KINDS:
        for served in kind.versions:
            assert kind_schema(kind.group, served.version, kind.kind)["properties"].keys() >= {
                "apiVersion",
                "kind",
                "metadata",
            }
            assert kind_schema(kind.group, served.version, kind.list_kind)["required"] == ["items"]


def test_schemas_differ_by_version() -> None:
    def request(version: str) -> set[str]:
        schema = schema_at(DRA, version, "ResourceClaim", "spec", "devices", "requests")
        return set(resolve(schema, DOCUMENTS[DRA, version]["components"]["schemas"])["properties"])

    assert request("v1") == request("v1beta2") == {"name", "exactly", "firstAvailable"}
    assert request("v1beta1") > {"name", "deviceClassName", "count", "firstAvailable"}


@pytest.mark.parametrize(
    ("kind", "path", "want"),
    [
        ((DRA, "v1", "ResourceClaim"), ("status", "reservedFor"), {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"], "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "uid"}),
        ((DRA, "v1beta1", "ResourceClaim"), ("status", "devices"), {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["driver", "device", "pool", "shareID"]}),
        ((DRA, "v1", "ResourceClaim"), ("spec", "devices", "requests"), {"type": "array", "x-kubernetes-list-type": "atomic"}),
        ((DRA, "v1", "ResourceClaim"), ("metadata", "finalizers"), {"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"}),
        (("", "v1", "Pod"), ("spec", "resourceClaims"), {"x-kubernetes-list-map-keys": ["name"], "x-kubernetes-patch-strategy": "merge,retainKeys"}),
        ((DRA, "v1", "ResourceSlice"), ("spec", "pool", "generation"), {"type": "integer", "format": "int64"}),
        ((DRA, "v1", "ResourceSlice"), ("spec", "allNodes"), {"type": "boolean"}),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_fields_have_merge_extensions(kind: tuple[str, str, str], path: tuple[str, ...], want: Document) -> None:
    schema = schema_at(*kind, *path)
    assert {name: schema.get(name) for name in want} == want


def test_partial_models_preserve_unknown_fields() -> None:
    assert schema_at("", "v1", "Pod")["x-kubernetes-preserve-unknown-fields"] is True
    assert "x-kubernetes-preserve-unknown-fields" not in schema_at(DRA, "v1", "ResourceClaim")


def rules(rule: MergeRule, schema: Document, schemas: Document, path: str) -> Iterator[str]:
    """Paths of rules about fields that the schema does not have."""
    properties = resolve(schema, schemas).get("properties", {})
    for name, below in rule.members.items():
        if name not in properties:
            yield f"{path}.{name}"
        else:
            yield from rules(below, properties[name], schemas, f"{path}.{name}")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.view is None], ids=lambda kind: kind.kind)
def test_merge_rules_name_existing_fields(kind: Any) -> None:
    for served in kind.versions:
        schemas = DOCUMENTS[kind.group, served.version]["components"]["schemas"]
        schema = kind_schema(kind.group, served.version, kind.kind)
        assert list(rules(merge_rule(kind.group, kind.kind), schema, schemas, kind.kind)) == []


def test_every_field_of_the_resource_group_has_a_description() -> None:
    unexplained = {
        f"{name.rpartition('.')[2]}.{field}"
        for version in ("v1", "v1beta1")
        for name, schema in DOCUMENTS[DRA, version]["components"]["schemas"].items()
        for field, value in schema.get("properties", {}).items()
        if ".resource." in name and not name.endswith("List")
        if not value.get("description")
    }
    assert unexplained == set()


def test_the_index_lists_each_document() -> None:
    hashes = {document_place(*place): "h" for place in DOCUMENTS}
    paths = openapi_index(KINDS, hashes)["paths"]
    assert paths.keys() == hashes.keys()
    assert paths["apis/resource.k8s.io/v1"] == {"serverRelativeURL": "/openapi/v3/apis/resource.k8s.io/v1?hash=h"}


def test_subresource_actions_have_their_own_body_kind() -> None:
    body = DOCUMENTS["", "v1"]["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/binding"]["post"]["requestBody"]
    assert "$ref" not in body["content"]["application/json"]["schema"]
    assert SUBRESOURCES["binding"].kind == "Binding"
