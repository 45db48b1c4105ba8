"""docs/reference/api.md: the kinds of resource.k8s.io and the types of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dralloc.kube.registry import KINDS
from dralloc.server.describe.openapi_v3 import openapi_document
from scripts.reference.markdown import anchor, table

GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
OWN_KINDS: Final = ("DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceTaintRule")
Schemas = dict[str, dict[str, Any]]


def fields_page() -> Iterator[str]:
    by_version = {version: schemas_of(version) for version in VERSIONS}
    yield "# Fields of resource.k8s.io"
    yield "The kinds, then the types of their fields. A field that is missing in some versions names the versions that have it; `*` marks required fields."
    yield "`kubectl explain` shows the same on a dralloc API server."
    yield ""
    kinds = [name for name in OWN_KINDS if any(name in schemas for schemas in by_version.values())]
    for name in (*kinds, *parts_of(by_version, kinds)):
        yield from type_section(name, by_version)


def schemas_of(version: str) -> Schemas:
    """Returns the types of a version by their short names."""
    schemas = openapi_document(KINDS, GROUP, version, "")["components"]["schemas"]
    return {name.rpartition(".")[2]: schema for name, schema in schemas.items()}


def parts_of(by_version: Mapping[str, Schemas], kinds: Sequence[str]) -> list[str]:
    """Returns the types of the kinds' fields, in the order of their first use."""
    found: list[str] = []
    waiting = list(reversed(kinds))
    while waiting:
        name = waiting.pop()
        if name not in kinds:
            if name in found:
                continue
            found.append(name)
        parts: dict[str, None] = {}
        for schemas in by_version.values():
            for field in schemas.get(name, {}).get("properties", {}).values():
                parts |= dict.fromkeys(referred(field))
        waiting.extend(reversed([part for part in parts if part not in found and part not in kinds]))
    return [name for name in found if any(schemas.get(name, {}).get("properties") for schemas in by_version.values())]


def referred(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition(".")[2]
        for value in schema.values():
            yield from referred(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from referred(value)


def type_section(name: str, by_version: Mapping[str, Schemas]) -> Iterator[str]:
    having = {version: schemas[name] for version, schemas in by_version.items() if name in schemas}
    yield f"## {name}"
    yield ""
    if len(having) < len(by_version):
        yield f"In {' and '.join(having)}."
        yield ""
    description = next(iter(having.values())).get("description", "")
    if description:
        yield from (description, "")
    fields: dict[str, dict[str, Any]] = {}
    for version, schema in having.items():
        for field, content in schema.get("properties", {}).items():
            fields.setdefault(field, {})[version] = (content, field in schema.get("required", ()))
    rows = []
    for field, versions in fields.items():
        content, required = next(iter(versions.values()))
        where = "" if len(versions) == len(having) else f" *({', '.join(versions)} only)*"
        rows.append([f"`{field}`{'*' if required else ''}", type_text(content), content.get("description", "") + where])
    yield from table(["field", "type", "meaning"], rows)


def type_text(schema: dict[str, Any]) -> str:
    if "allOf" in schema:
        return type_text(schema["allOf"][0])
    if "$ref" in schema:
        name = schema["$ref"].rpartition(".")[2]
        return name if name in ("Quantity", "RawExtension", "Time") else f"[{name}](#{anchor(name)})"
    if schema.get("type") == "array":
        return f"list of {type_text(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {type_text(schema['additionalProperties'])}"
    return str(schema.get("format") if schema.get("format") == "date-time" else schema.get("type", "any"))
