"""OpenAPI v2 in protobuf: decoded by the wire format, it contains what kubectl up to 1.28 reads."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from dralloc.kube.registry import KINDS
from dralloc.kube.review_kinds import REVIEW_KINDS
from dralloc.server.describe.discovery import group_versions
from dralloc.server.describe.openapi_v2 import openapi_v2_protobuf
from dralloc.server.describe.openapi_v3 import openapi_document

DOCUMENTS = [openapi_document(KINDS, group, version, "v0") for group, version in group_versions(KINDS)]
ENCODED = openapi_v2_protobuf(DOCUMENTS, "v0")


def fields(message: bytes) -> dict[int, list[bytes]]:
    """The length-delimited fields of a message, by their numbers."""
    found: dict[int, list[bytes]] = defaultdict(list)
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        assert key & 7 == 2, "every field that we write is length-delimited"
        length, position = varint(message, position)
        found[key >> 3].append(message[position : position + length])
        position += length
    assert position == len(message)
    return found


def varint(message: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return number, position


def named(messages: list[bytes]) -> dict[str, dict[int, list[bytes]]]:
    pairs = map(fields, messages)
    return {pair[1][0].decode(): fields(pair[2][0]) for pair in pairs}


def extensions(messages: list[bytes]) -> dict[str, Any]:
    return {name: json.loads(value[2][0]) for name, value in named(messages).items()}


DOCUMENT = fields(ENCODED)
DEFINITIONS = named(fields(DOCUMENT[9][0])[1])


def properties(definition: str) -> dict[str, dict[int, list[bytes]]]:
    return named(fields(DEFINITIONS[definition][25][0])[1])


def test_the_document_is_swagger_2() -> None:
    assert DOCUMENT[1] == [b"2.0"]
    assert fields(DOCUMENT[2][0])[1] == [b"Kubernetes"]


def test_every_schema_is_defined() -> None:
    assert DEFINITIONS.keys() == {name for document in DOCUMENTS for name in document["components"]["schemas"]}


def test_kinds_are_found_by_group_version_and_kind() -> None:
    kinds = [
        entry
        for definition in DEFINITIONS.values()
        for entry in extensions(definition[31]).get("x-kubernetes-group-version-kind", ())
    ]
    wanted = [
        {"group": kind.group, "version": served.version, "kind": name}
        for kind in KINDS
        for served in kind.versions
        for name in (kind.kind, kind.list_kind)
    ]
    wanted += [{"group": review.group, "version": review.version, "kind": review.kind} for review in REVIEW_KINDS]
    assert sorted(map(str, kinds)) == sorted(map(str, wanted))


def test_fields_refer_to_definitions() -> None:
    status = properties("io.k8s.api.resource.v1.ResourceClaimStatus")
    assert status["allocation"][1] == [b"#/definitions/io.k8s.api.resource.v1.AllocationResult"]
    reserved_for = status["reservedFor"]
    assert fields(reserved_for[22][0])[1] == [b"array"]
    assert fields(fields(reserved_for[23][0])[1][0])[1] == [b"#/definitions/io.k8s.api.resource.v1.ConsumerReference"]
    assert extensions(reserved_for[31])["x-kubernetes-patch-merge-key"] == "uid"


def test_a_quantity_is_a_string_in_version_2() -> None:
    quantity = DEFINITIONS["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert fields(quantity[22][0])[1] == [b"string"]


def test_maps_have_a_value_type() -> None:
    attributes = properties("io.k8s.api.resource.v1.Device")["attributes"]
    value = fields(fields(attributes[21][0])[1][0])
    assert value[1] == [b"#/definitions/io.k8s.api.resource.v1.DeviceAttribute"]


def test_partial_models_list_no_fields() -> None:
    pod = DEFINITIONS["io.k8s.api.core.v1.Pod"]
    assert 25 not in pod
    assert 25 in DEFINITIONS["io.k8s.api.resource.v1.ResourceClaim"]


def test_patches_list_their_parameters() -> None:
    paths = named(fields(DOCUMENT[8][0])[2])
    patch = fields(paths["/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"][8][0])
    assert extensions(patch[13])["x-kubernetes-group-version-kind"] == {
        "group": "resource.k8s.io",
        "version": "v1",
        "kind": "ResourceClaim",
    }
    # ParametersItem > Parameter > NonBodyParameter > QueryParameterSubSchema
    parameters = [fields(fields(fields(fields(item)[1][0])[2][0])[3][0]) for item in patch[8]]
    assert [parameter[4] for parameter in parameters] == [
        [b"dryRun"],
        [b"fieldManager"],
        [b"fieldValidation"],
        [b"force"],
    ]
