"""Protobuf bodies are converted to the JSON that the client could have sent, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.protobuf_reader import protobuf_to_json
from dralloc.kube.protobuf_schema import messages
from dralloc.primitives.errors import BadRequest
from dralloc.server.http.messages import PROTOBUF
from tests.support.local_api import LocalApi, with_api

# As kubectl 1.32 sends `kubectl create namespace foo`.
NAMESPACE = bytes.fromhex(
    "6b3873000a0f0a02763112094e616d657370616365121b0a130a03666f6f12001a0022002a0032003800420012001a020a001a002200"
)


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def member(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def body(api_version: str, kind: str, *members: bytes) -> bytes:
    type_ = member(1, api_version) + member(2, kind)
    return b"k8s\x00" + member(1, type_) + member(2, b"".join(members))


def read(content: bytes) -> Any:
    return json.loads(protobuf_to_json(content))


def test_a_body_of_kubectl_is_decoded() -> None:
    document = read(NAMESPACE)
    assert (document["apiVersion"], document["kind"], document["metadata"]["name"]) == ("v1", "Namespace", "foo")
    assert "creationTimestamp" not in document["metadata"]


@with_api
async def test_a_namespace_is_created_from_protobuf(api: LocalApi) -> None:
    created = await api.call("POST", "/api/v1/namespaces", NAMESPACE.decode("latin-1"), content_type=PROTOBUF)
    assert created.code == 201, created
    assert (await api.get("/api/v1/namespaces/foo"))["status"] == {"phase": "Active"}


def test_every_type_of_field_is_decoded() -> None:
    quantity = member(1, "10Gi")
    parameters = member(1, "gpu.example.com") + member(2, member(1, b'{"a": 1.50}'))
    request = (
        member(1, "gpu.example.com") + member(4, 0) + member(7, member(1, member(1, "memory") + member(2, quantity)))
    )
    claim = body(
        "resource.k8s.io/v1",
        "ResourceClaim",
        member(1, member(1, "c") + member(8, member(1, 1_700_000_000)) + member(11, member(1, "app") + member(2, "x"))),
        member(
            2,
            member(
                1,
                member(1, member(1, "gpu") + member(2, request))
                + member(3, member(1, "gpu") + member(1, "nic") + member(2, member(1, parameters))),
            ),
        ),
    )
    assert read(claim) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "creationTimestamp": "2023-11-14T22:13:20Z", "labels": {"app": "x"}},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": "gpu.example.com",
                            "capacity": {"requests": {"memory": "10Gi"}},
                        },
                    }
                ],
                "config": [
                    {"requests": ["gpu", "nic"], "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1.5}}}
                ],
            }
        },
    }


def test_negative_numbers_microseconds_and_embedded_messages_are_decoded() -> None:
    renewed = member(1, 1_700_000_000) + member(2, 123_456_000)
    lease = body("coordination.k8s.io/v1", "Lease", member(2, member(2, -5) + member(4, renewed)))
    assert read(lease)["spec"] == {"leaseDurationSeconds": -5, "renewTime": "2023-11-14T22:13:20.123456Z"}
    volume = member(1, "v") + member(2, member(2, member(1, "Memory")))
    port = member(1, 1) + member(3, "http")
    probe = member(1, member(2, member(1, "/health") + member(2, port))) + member(2, 3)
    container = member(1, "c") + member(10, probe)
    spec = read(body("v1", "Pod", member(2, member(1, volume) + member(2, container))))["spec"]
    assert spec["volumes"] == [{"name": "v", "emptyDir": {"medium": "Memory"}}]
    probed = spec["containers"][0]["livenessProbe"]
    assert probed == {"httpGet": {"path": "/health", "port": "http"}, "initialDelaySeconds": 3}


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        body("example.com/v1", "Pod"),
        body("v1", "Pod", member(1, 5)),
        body("v1", "Pod", member(1, member(7, "text"))),
        body("v1", "Pod", member(1, b"\x0a\xff")),
        body("v1", "Pod", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        body("v1", "Pod", member(1, member(1, b"\xff\xfe"))),
    ],
    ids=["JSON", "group", "not a message", "not a number", "cut off", "long", "not text"],
)
def test_garbage_and_unknown_kinds_are_refused(content: bytes) -> None:
    with pytest.raises(BadRequest):
        protobuf_to_json(content)


def test_unknown_fields_are_skipped_and_empty_ones_absent() -> None:
    metadata = member(1, "n") + member(4, "") + member(999, "novel")
    status = member(14, "NewFeature") + member(15, member(1, 5))
    document = read(body("v1", "Node", member(1, metadata), member(3, status), member(999, 1)))
    assert document["metadata"] == {"name": "n"}
    assert document["status"] == {"declaredFeatures": ["NewFeature"]}


@given(st.binary(max_size=200), st.sampled_from(["Pod", "Namespace", "Event"]))
def test_random_bytes_are_decoded_or_refused(content: bytes, kind: str) -> None:
    try:
        document = read(body("v1", kind, content))
    except BadRequest:
        return
    assert document["kind"] == kind


def test_messages_refer_to_known_messages_without_recursion() -> None:
    known = messages()

    def depth(name: str, above: tuple[str, ...] = ()) -> int:
        assert name not in above, f"{name} holds itself"
        inner = [field.type for field in known[name].values() if "." in field.type]
        return 1 + max((depth(type_, (*above, name)) for type_ in inner), default=0)

    assert max(map(depth, known)) < 20
