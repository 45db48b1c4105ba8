"""Merge patches of objects in protobuf: the result is that of the same patch in JSON, and other bytes are kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dralloc.kube.protobuf_reader import protobuf_to_json, read_envelope
from dralloc.kube.protobuf_schema import MAGIC
from dralloc.kube.protobuf_writer import merge_protobuf, to_protobuf, wire_field
from dralloc.server.documents.json_patch import apply_merge_patch

CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "resourceVersion": "7", "labels": {"a": "b", "c": "d"}, "finalizers": ["x.io/y"]},
    "spec": {"devices": {"requests": [{"name": "r"}], "config": [{"opaque": {"driver": "d", "parameters": {"z": 1}}}]}},
    "status": {
        "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "e"}]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    },
}
REFERENCES = [{"resource": "pods", "name": name, "uid": name} for name in ("q", "r")]


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": None, "resourceVersion": "9"}},
        {"metadata": {"labels": {"only": "this"}}},
        {"status": {"reservedFor": REFERENCES}},
        {"status": {"reservedFor": None, "allocation": None, "devices": None}},
        {"status": {"allocation": {"reservedForAnyPod": True}}},
        {"status": None},
    ],
    ids=str,
)
def test_the_result_is_that_of_the_patch_in_json(patch: dict[str, Any]) -> None:
    merged = msgspec.json.decode(protobuf_to_json(merge_protobuf(to_protobuf(CLAIM), patch)))
    want = apply_merge_patch(CLAIM, patch)
    if "labels" in patch.get("metadata", {}):
        # Maps are replaced as a whole: no writer needs more.
        want["metadata"]["labels"] = patch["metadata"]["labels"]
    assert merged == want


def test_other_members_keep_their_bytes() -> None:
    body = to_protobuf(CLAIM)
    # Parameters with another spelling, and fields of a newer server of every wire type.
    body = body.replace(b'{"z":1}', b'{"z" :1}'[:7])
    strange = wire_field(900, 0, 300) + wire_field(901, 1, 5) + wire_field(902, 5, 6) + wire_field(903, 2, b"new")
    api_version, kind, content = read_envelope(body)
    type_ = wire_field(1, 2, wire_field(1, 2, api_version.encode()) + wire_field(2, 2, kind.encode()))
    body = MAGIC + type_ + wire_field(2, 2, content + strange)
    merged = merge_protobuf(body, {"metadata": {"finalizers": ["n"]}})
    _, _, changed = read_envelope(merged)
    assert strange in changed
    assert b'{"z" :1' in changed
    assert merge_protobuf(merged, {"metadata": {"finalizers": ["x.io/y"]}}).endswith(wire_field(14, 2, b"x.io/y"))
