"""The typed client: the same behaviour over a socket and inside the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from dralloc.client.api_calls import PatchType, WatchEvent
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import UnknownResource
from dralloc.client.transport import ClientRequest, TransportError
from dralloc.client.typed_resource import Object
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import DeviceClass, DeviceClassSpec, ResourceClaim
from dralloc.primitives.errors import AlreadyExists, Conflict, Invalid, NotFound, Unauthorized
from dralloc.server.http.messages import HttpResponse
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import api_in_process, api_over_http

Opened = Callable[[], AbstractAsyncContextManager[AsyncClient]]
Scenario = Callable[[AsyncClient], Coroutine[Any, Any, None]]


@pytest.fixture(params=[api_in_process, api_over_http], ids=["in process", "over http"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Runs a scenario against a fresh server."""
    open_client: Opened = request.param

    async def in_fresh_server(scenario: Scenario) -> None:
        async with open_client() as client:
            await scenario(client)

    return lambda scenario: asyncio.run(in_fresh_server(scenario))


def device_class(name: str, **labels: str) -> DeviceClass:
    return DeviceClass(metadata=ObjectMeta(name=name, labels=labels), spec=DeviceClassSpec())


def test_objects_can_be_created_read_replaced_patched_and_deleted(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: AsyncClient) -> None:
        created = await client.create(device_class("gpu"))
        assert await client.get(DeviceClass, "gpu") == created
        labelled = msgspec.structs.replace(
            created, metadata=msgspec.structs.replace(created.metadata, labels={"tier": "fast"})
        )
        replaced = await client.replace(labelled)
        assert replaced.metadata.labels == {"tier": "fast"}
        patched = await client.patch(DeviceClass, "gpu", {"metadata": {"labels": {"tier": None, "by": "patch"}}})
        assert patched.metadata.labels == {"by": "patch"}
        operations = [{"op": "replace", "path": "/metadata/labels/by", "value": "json"}]
        patched = await client.patch(DeviceClass, "gpu", operations, type=PatchType.JSON)
        assert patched.metadata.labels == {"by": "json"}
        await client.delete(DeviceClass, "gpu")
        with pytest.raises(NotFound, match="gpu"):
            await client.get(DeviceClass, "gpu")

    run(scenario)


def test_errors_have_distinct_types_and_causes(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: AsyncClient) -> None:
        created = await client.create(device_class("gpu"))
        with pytest.raises(AlreadyExists):
            await client.create(device_class("gpu"))
        await client.patch(DeviceClass, "gpu", {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(Conflict):
            await client.replace(created)
        with pytest.raises(Invalid) as refused:
            await client.create(device_class("Not A Name"))
        assert refused.value.details is not None
        assert [cause.field for cause in refused.value.details.causes] == ["metadata.name"]

    run(scenario)


def test_documents_are_accepted_instead_of_objects_without_loss(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: AsyncClient) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"podCIDR": "10.0.0.0/24"}}
        assert isinstance(await client.create(node), Node)
        patched = await client.patch(
            Node, "n1", [{"op": "test", "path": "/spec/podCIDR", "value": "10.0.0.0/24"}], type=PatchType.JSON
        )
        assert patched.metadata.name == "n1"

    run(scenario)


def test_apply_creates_and_then_changes_only_its_fields(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.apply(device_class("gpu", tier="fast"))
        await client.patch(DeviceClass, "gpu", {"metadata": {"annotations": {"kept": "yes"}}})
        applied = await client.apply(device_class("gpu", tier="slow"))
        assert applied.metadata.labels == {"tier": "slow"}
        assert applied.metadata.annotations == {"kept": "yes"}

    run(scenario)


def test_lists_are_read_in_pages_and_filtered(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: AsyncClient) -> None:
        for number in range(7):
            await client.create(device_class(f"c{number}", even=str(number % 2 == 0).lower()))
        from dralloc.client.known_resources import resource_for

        items, _ = await client.calls.list_all(resource_for(DeviceClass), page_size=3)
        assert [item.metadata.name for item in items] == [f"c{number}" for number in range(7)]
        even = await client.list(DeviceClass, labels="even=true")
        assert [item.metadata.name for item in even] == ["c0", "c2", "c4", "c6"]
        assert [item.metadata.name for item in await client.list(DeviceClass, fields="metadata.name=c3")] == ["c3"]

    run(scenario)


def test_a_watch_yields_existing_objects_and_then_every_change_in_order(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.create(device_class("old"))
        events = client.watch(DeviceClass)
        assert await told(events) == ("ADDED", "old")
        await client.create(device_class("new"))
        await client.patch(DeviceClass, "old", {"metadata": {"labels": {"a": "b"}}})
        await client.delete(DeviceClass, "new")
        assert [await told(events) for _ in range(3)] == [("ADDED", "new"), ("MODIFIED", "old"), ("DELETED", "new")]
        await events.aclose()  # type: ignore[attr-defined]

    run(scenario)


def test_a_wrong_token_is_rejected() -> None:
    async def scenario() -> None:
        from dralloc.client.in_process_transport import InProcessTransport
        from tests.support.api_server import api_application

        async with api_application() as application:
            client = AsyncClient(InProcessTransport(application, token="guess"))
            with pytest.raises(Unauthorized):
                await client.list(ResourceClaim)

    asyncio.run(scenario())


def test_an_unreachable_server_is_a_clear_error() -> None:
    async def scenario() -> None:
        from dralloc.client.async_client import connect_async

        async with connect_async("http://127.0.0.1:1") as client:
            with pytest.raises(TransportError, match=r"no answer from http://127.0.0.1:1 to GET /apis/resource.k8s.io"):
                await client.list(ResourceClaim)

    asyncio.run(scenario())


def test_an_unknown_kind_is_reported() -> None:
    async def scenario() -> None:
        async with api_in_process() as client:
            with pytest.raises(UnknownResource, match="Widget"):
                await client.create({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}})

    asyncio.run(scenario())


def test_polling_does_not_starve_other_tasks(run: Callable[[Scenario], None]) -> None:
    async def scenario(client: AsyncClient) -> None:
        async def make() -> None:
            await client.create(DeviceClass(metadata=ObjectMeta(name="late"), spec=DeviceClassSpec()))

        making = asyncio.ensure_future(make())
        async with asyncio.timeout(60):
            while not await client.list(DeviceClass):
                continue
        await making

    run(scenario)


def test_a_streamed_list_arrives_complete() -> None:
    async def scenario() -> None:
        padding = {"padding": "x" * 200_000}
        async with api_in_process() as client:
            for number in range(12):
                metadata = ObjectMeta(name=f"c{number}", annotations=padding)
                await client.create(DeviceClass(metadata=metadata, spec=DeviceClassSpec()))
            assert len(await client.list(DeviceClass)) == 12

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_document_of_another_version_is_sent_unchanged(version: str) -> None:
    async def scenario() -> None:
        asked: dict[str, Any] = {"deviceClassName": "gpu"}
        request = {"name": "gpu", **asked} if version == "v1beta1" else {"name": "gpu", "exactly": asked}
        document = {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [request]}},
        }
        async with api_in_process() as client:
            written = await client.apply(document)
            assert written == await client.get(ResourceClaim, "c")
            assert written.spec.devices.requests[0].exactly.device_class_name == "gpu"

    asyncio.run(scenario())


async def told(events: AsyncIterator[WatchEvent[Object]]) -> tuple[str, str]:
    async with asyncio.timeout(60):
        event = await anext(events)
    return event.type, event.object.metadata.name


def test_cancellation_while_leaving_a_stream_ends_the_reader() -> None:
    """Otherwise the task that stops the reader would hang."""

    async def slow_to_go() -> AsyncGenerator[bytes, None]:
        try:
            yield b"something\n"
        finally:
            await asyncio.sleep(1)

    class Server:
        async def answer(self, *_: object) -> HttpResponse:
            return HttpResponse(stream=slow_to_go())

    async def reader() -> None:
        while True:
            async with InProcessTransport(Server()).stream(ClientRequest(method="GET", path="/")) as stream:
                await anext(stream.pieces())

    async def main() -> None:
        reading = asyncio.create_task(reader())
        await asyncio.sleep(0.5)
        reading.cancel()
        await asyncio.wait((reading,), timeout=60)
        assert reading.cancelled()

    run_virtual(main())
