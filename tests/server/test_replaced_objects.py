"""Objects that other programs replace: nothing that they do not know is lost, and nothing is refused that they did not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dralloc.kube.protobuf_reader import protobuf_to_json
from dralloc.kube.protobuf_writer import to_protobuf
from dralloc.server.documents.json_documents import Document
from dralloc.server.documents.kept_members import with_kept_members
from dralloc.server.http.messages import PROTOBUF, HttpRequest
from dralloc.server.read.stored_form import read_document
from tests.support.local_api import CLAIMS, MERGE_PATCH, LocalApi, claim_document, with_api

JOB = {"apiGroup": "batch", "resource": "jobs", "name": "j", "uid": "u"}
# Keys that are not sorted, spaces, escapes, and numbers that a reader would print differently.
PARAMETERS = b'{ "b" : "\\u003c <&>", "a": [1.50, 1E2, 123456789012345678901234567890],\n "a/b": {"z":null,"y":{}} }'


def workload_claim(parameters: bytes = PARAMETERS) -> Document:
    claim = claim_document("c")
    config = [{"opaque": {"driver": "d.example.com", "parameters": msgspec.Raw(parameters)}}]
    return {**claim, "spec": {"devices": {**claim["spec"]["devices"], "config": config}, "reservedFor": JOB}}


async def send(api: LocalApi, method: str, path: str, body: bytes = b"") -> Any:
    headers = {b"accept": PROTOBUF.encode(), b"content-type": PROTOBUF.encode()}
    return await api.server.handle(HttpRequest(method, path, {}, headers, body, api.user))


async def replace_as_go_client(api: LocalApi, path: str, change: Callable[[Document], None]) -> int:
    """Read the object as a Go program of released Kubernetes does, change it and send it back."""
    claim = read_document(protobuf_to_json((await send(api, "GET", path)).body))
    claim["spec"].pop("reservedFor", None)
    claim.get("status", {}).get("allocation", {}).pop("reservedForAnyPod", None)
    change(claim)
    return int((await send(api, "PUT", path, to_protobuf(claim))).status)


@with_api
async def test_a_go_client_keeps_what_it_does_not_know(api: LocalApi) -> None:
    await api.create(CLAIMS, workload_claim())
    before = await api.get(f"{CLAIMS}/c")

    def protect(claim: Document) -> None:
        claim["metadata"]["finalizers"] = ["x.io/y"]

    assert await replace_as_go_client(api, f"{CLAIMS}/c", protect) == 200
    after = await api.get(f"{CLAIMS}/c")
    assert (after["metadata"]["finalizers"], after["spec"]) == (["x.io/y"], before["spec"])
    status = {"allocation": {"devices": {}, "reservedForAnyPod": True}, "reservedFor": [JOB]}
    await api.call("PATCH", f"{CLAIMS}/c/status", {"status": status}, content_type=MERGE_PATCH)

    def reserve(claim: Document) -> None:
        claim["status"]["reservedFor"].append({"resource": "pods", "name": "p", "uid": "p"})

    assert await replace_as_go_client(api, f"{CLAIMS}/c/status", reserve) == 200
    reserved = (await api.get(f"{CLAIMS}/c"))["status"]
    assert reserved["allocation"]["reservedForAnyPod"] is True
    assert [each["name"] for each in reserved["reservedFor"]] == ["j", "p"]


@with_api
async def test_an_update_in_json_keeps_the_workload_of_a_claim(api: LocalApi) -> None:
    await api.create(CLAIMS, workload_claim(b'{ "b": "\\u003c", "a": 1.5 }'))
    read = await api.get(f"{CLAIMS}/c")
    spec = {name: value for name, value in read["spec"].items() if name != "reservedFor"}
    written = await api.call("PUT", f"{CLAIMS}/c", {**read, "spec": spec})
    assert written.code == 200, written.document
    assert (written.code, written.document["spec"]) == (200, read["spec"])
    other = await api.call("PUT", f"{CLAIMS}/c", {**read, "spec": {**spec, "reservedFor": {**JOB, "uid": "v"}}})
    assert (other.code, other.causes) == (422, [("FieldValueInvalid", "spec")])


@with_api
async def test_a_patch_that_removes_the_workload_of_a_claim_is_refused(api: LocalApi) -> None:
    await api.create(CLAIMS, workload_claim())
    removed = await api.call("PATCH", f"{CLAIMS}/c", {"spec": {"reservedFor": None}}, content_type=MERGE_PATCH)
    assert (removed.code, removed.causes) == (422, [("FieldValueInvalid", "spec")])


@pytest.mark.parametrize("kind", ["merge-patch", "strategic-merge-patch"])
def test_a_patch_does_not_change_the_text_of_parameters(kind: str) -> None:
    @with_api
    async def main(api: LocalApi) -> None:
        await api.create(CLAIMS, workload_claim())
        patch = {"metadata": {"finalizers": ["x.io/y"]}}
        written = await api.call("PATCH", f"{CLAIMS}/c", patch, content_type=f"application/{kind}+json")
        assert written.code == 200, written.document

    main()


@with_api
async def test_parameters_have_the_same_text_in_every_encoding(api: LocalApi) -> None:
    await api.create(CLAIMS, workload_claim())
    read = await api.server.handle(HttpRequest("GET", f"{CLAIMS}/c", {}, {}, b"", api.user))
    text = msgspec.json.decode(read.body, type=dict[str, msgspec.Raw])
    document = msgspec.json.decode(read.body)
    assert b'{"a":[1.50,1E2,123456789012345678901234567890]' in bytes(text["spec"])
    assert b'{"a":[1.50,1E2,123456789012345678901234567890]' in (await send(api, "GET", f"{CLAIMS}/c")).body
    assert document["spec"]["devices"]["config"][0]["opaque"]["parameters"]["b"] == "< <&>"


@with_api
async def test_a_body_that_knows_our_members_may_set_them(api: LocalApi) -> None:
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim_document("c")}
    body["spec"] = {**body["spec"], "reservedFor": JOB}
    created = await send(api, "POST", CLAIMS, to_protobuf(body))
    assert created.status == 201
    assert (await api.get(f"{CLAIMS}/c"))["spec"]["reservedFor"] == JOB


def test_an_object_that_lacks_nothing_is_the_same_object() -> None:
    sent = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **workload_claim()}
    assert with_kept_members(sent, {**sent}) is sent


@pytest.mark.parametrize("requests", [[None], [None, {"name": "r"}], "x", {"name": "r"}, [["r"]], [1]])
def test_values_of_a_wrong_type_are_left_to_validation(requests: Any) -> None:
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    stored = {**kind, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"devicePreference": "x"}}]}}}
    sent = {**kind, "spec": {"devices": {"requests": requests}}}
    assert with_kept_members(sent, stored)["spec"]["devices"]["requests"] == requests
    for wrong in ({"devices": requests}, {"devices": None}, requests):
        assert with_kept_members({**kind, "spec": wrong}, stored)["spec"] == wrong
