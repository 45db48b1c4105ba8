"""OpenAPI v2 as gnostic's protobuf messages, the form that kubectl up to 1.28 needs for apply and explain.

It reads definitions and the parameters of patches, so only those are written. Field numbers are those of gnostic's
`OpenAPIv2.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from dralloc.server.documents.json_documents import Document

# Clients accept this with `@` before the version, which is not valid in a Content-Type.
CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_V3_SCHEMAS: Final = "#/components/schemas/"
_V2_SCHEMAS: Final = "#/definitions/"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


def openapi_v2_protobuf(documents: Iterable[Document], product_version: str) -> bytes:
    """One v2 document for all these v3 documents."""
    schemas: dict[str, Document] = {}
    paths: dict[str, Document] = {}
    for document in documents:
        schemas.update(document["components"]["schemas"])
        paths.update(document["paths"])
    return b"".join(
        (
            _text(1, "2.0"),
            _message(2, _text(1, "Kubernetes") + _text(2, product_version)),
            _message(8, b"".join(_message(2, _named(path, _path_item(item))) for path, item in sorted(paths.items()))),
            _message(9, _named_schemas(schemas)),
        )
    )


def _path_item(item: Document) -> bytes:
    return _message(8, _operation(item["patch"])) if "patch" in item else b""


def _operation(operation: Document) -> bytes:
    parameters = (_message(8, _query_parameter(parameter)) for parameter in operation["parameters"])
    return _text(5, operation["operationId"]) + b"".join(parameters) + _extensions(13, operation)


def _query_parameter(parameter: Document) -> bytes:
    described = _text(2, "query") + _text(3, parameter["description"]) + _text(4, parameter["name"])
    # ParametersItem.parameter > Parameter.non_body_parameter > NonBodyParameter.query_parameter_sub_schema
    return _message(1, _message(2, _message(3, described + _text(6, parameter["schema"]["type"]))))


def _named_schemas(schemas: Document) -> bytes:
    return b"".join(_message(1, _named(name, _schema(schema))) for name, schema in sorted(schemas.items()))


def _schema(schema: Document) -> bytes:
    return b"".join(_schema_fields(_as_version_2(schema)))


def _schema_fields(schema: Document) -> Iterator[bytes]:
    if reference := schema.get("$ref"):
        yield _text(1, reference.replace(_V3_SCHEMAS, _V2_SCHEMAS))
    if "format" in schema:
        yield _text(2, schema["format"])
    if "description" in schema:
        yield _text(4, schema["description"])
    for name in schema.get("required", ()):
        yield _text(19, name)
    if "additionalProperties" in schema:
        yield _message(21, _message(1, _schema(schema["additionalProperties"])))
    if "type" in schema:
        yield _message(22, _text(1, schema["type"]))
    if "items" in schema:
        yield _message(23, _message(1, _schema(schema["items"])))
    if "properties" in schema:
        yield _message(25, _named_schemas(schema["properties"]))
    yield _extensions(31, schema)


def _as_version_2(schema: Document) -> Document:
    """The schema in terms of version 2."""
    if "oneOf" in schema:
        # Version 2 has no choice between string and number.
        return {"type": "string", **{name: value for name, value in schema.items() if name != "oneOf"}}
    if "allOf" in schema:
        (reference,) = schema["allOf"]
        return {**reference, **{name: value for name, value in schema.items() if name != "allOf"}}
    if schema.get(_PRESERVE):
        # Old clients reject fields that are not listed, so an incomplete list must not be published.
        return {name: value for name, value in schema.items() if name not in ("properties", "required")}
    return schema


def _extensions(number: int, holder: Document) -> bytes:
    extensions = ((name, value) for name, value in holder.items() if name.startswith("x-"))
    return b"".join(_message(number, _named(name, _text(2, _yaml(value)))) for name, value in extensions)


def _yaml(value: Any) -> str:
    # JSON is YAML.
    return msgspec.json.encode(value).decode()


def _named(name: str, value: bytes) -> bytes:
    """A name-value pair, gnostic's encoding of a map entry."""
    return _text(1, name) + _message(2, value)


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _message(number: int, payload: bytes) -> bytes:
    """A length-delimited field of protobuf's wire format."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
