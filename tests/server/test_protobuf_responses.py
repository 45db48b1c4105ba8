"""Responses in protobuf: objects, lists, errors and watches, for clients that prefer it to JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dralloc.kube.protobuf_reader import protobuf_to_json
from dralloc.kube.protobuf_writer import to_protobuf
from dralloc.server.http.messages import PROTOBUF, HttpRequest, HttpResponse
from dralloc.server.store.memory import MemoryStore
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import api_server
from tests.support.kubernetes_messages import compares_with_kubernetes, message_class
from tests.support.local_api import CLAIMS, PODS, LocalApi, claim_document, pod_document, with_api

PREFERRED = f"{PROTOBUF},application/json"


async def ask(
    api: LocalApi, path: str, accept: str = PREFERRED, method: str = "GET", body: bytes = b"", **query: str
) -> HttpResponse:
    headers = {b"accept": accept.encode(), b"content-type": PROTOBUF.encode()}
    return await api.server.handle(HttpRequest(method, path, query, headers, body, api.user))


def read(response: HttpResponse) -> Any:
    assert response.content_type == PROTOBUF
    return json.loads(protobuf_to_json(response.body))


def watch_events(content: bytes) -> Iterator[tuple[str, Any]]:
    event_class = message_class("k8s.io.apimachinery.pkg.apis.meta.v1.WatchEvent")
    while content:
        length = 4 + int.from_bytes(content[:4], "big")
        event = event_class.FromString(content[4:length])
        yield event.type, json.loads(protobuf_to_json(event.object.raw))
        content = content[length:]


@with_api
async def test_objects_lists_and_errors(api: LocalApi) -> None:
    await api.create(CLAIMS, claim_document("c"))
    await api.create(PODS, pod_document("p"))
    assert read(await ask(api, f"{CLAIMS}/c"))["spec"] == (await api.get(f"{CLAIMS}/c"))["spec"]
    pods = read(await ask(api, PODS))
    assert (pods["kind"], [each["metadata"]["name"] for each in pods["items"]]) == ("PodList", ["p"])
    refused = read(await ask(api, f"{CLAIMS}/nope"))
    assert (refused["kind"], refused["reason"], refused["code"]) == ("Status", "NotFound", 404)


@with_api
async def test_a_long_list(api: LocalApi) -> None:
    for number in range(30):
        await api.create(PODS, pod_document(f"p{number:02}", annotations={"a": "x" * 100_000}))
    listed = read(await ask(api, PODS))
    assert len(listed["items"]) == 30


@pytest.mark.parametrize(
    ("accept", "want"),
    [
        (PREFERRED, PROTOBUF),
        (PROTOBUF, PROTOBUF),
        (f"{PROTOBUF};q=0.1,application/json", "application/json"),
        ("application/json", "application/json"),
        (f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", PROTOBUF),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1", "application/json"),
    ],
)
def test_the_preferred_encoding(accept: str, want: str) -> None:
    @with_api
    async def main(api: LocalApi) -> None:
        await api.create(CLAIMS, claim_document("c"))
        assert (await ask(api, f"{CLAIMS}/c", accept)).content_type == want

    main()


@with_api
async def test_what_has_no_message_stays_json(api: LocalApi) -> None:
    assert (await ask(api, "/apis")).content_type == "application/json"


@compares_with_kubernetes
@with_api
async def test_a_watch(api: LocalApi) -> None:
    await api.create(CLAIMS, claim_document("c"))
    response = await ask(api, CLAIMS, watch="true", timeoutSeconds="1", allowWatchBookmarks="true")
    assert response.content_type == f"{PROTOBUF};stream=watch"
    assert response.stream is not None
    content = b"".join([piece async for piece in response.stream])
    events = list(watch_events(content))
    assert [(type_, document["kind"]) for type_, document in events] == [
        ("ADDED", "ResourceClaim"),
        ("BOOKMARK", "ResourceClaim"),
    ]
    assert events[0][1]["metadata"]["name"] == "c"


@with_api
async def test_an_object_is_read_changed_and_written(api: LocalApi) -> None:
    await api.create(CLAIMS, claim_document("c"))
    claim = read(await ask(api, f"{CLAIMS}/c"))
    claim["metadata"]["finalizers"] = ["example.com/keep"]
    written = read(await ask(api, f"{CLAIMS}/c", method="PUT", body=to_protobuf(claim)))
    assert written["metadata"]["finalizers"] == ["example.com/keep"]
    stale = await ask(api, f"{CLAIMS}/c", method="PUT", body=to_protobuf(claim))
    assert read(stale)["reason"] == "Conflict"


def test_a_value_that_cannot_be_encoded_is_sent_as_json() -> None:
    """No request can store such a value; earlier versions did."""

    async def main() -> None:
        async with MemoryStore() as store, api_server(store=store) as server:
            lease = b'{"metadata":{"name":"a","namespace":"default"},"spec":{"renewTime":"never"}}'
            await store.create("/registry/leases.coordination.k8s.io/default/a", lease)
            path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a"
            assert (await ask(LocalApi(server), path)).content_type == "application/json"

    run_virtual(main())


@with_api
async def test_the_answer_to_a_write_is_the_metadata_if_asked_for(api: LocalApi) -> None:
    """A garbage collector of Kubernetes knows the metadata of all kinds, and nothing else of most."""
    await api.create(PODS, pod_document("p"))
    form = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    accept = f"{PROTOBUF};{form},application/json;{form}"
    headers = {b"accept": accept.encode(), b"content-type": b"application/merge-patch+json"}
    patch = b'{"metadata":{"labels":{"a":"b"}}}'
    shown = read(await api.server.handle(HttpRequest("PATCH", f"{PODS}/p", {}, headers, patch, api.user)))
    assert (shown["kind"], shown["metadata"]["labels"], "spec" in shown) == ("PartialObjectMetadata", {"a": "b"}, False)
