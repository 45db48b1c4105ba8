"""Faults of drivers, as functions that spoil a call on its way to a correct driver; the tests of the driver kit use them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from dralloc.client.async_client import AsyncClient
from dralloc.client.transport import ClientRequest
from dralloc.driver.settings import Settings
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import ResourceClaim, ResourcePool, ResourceSlice, ResourceSliceSpec
from dralloc.primitives.errors import AlreadyExists, ApiError, NotFound
from dralloc.rpc.plugin_services import DRA_V1BETA1
from dralloc.testing.driver_bench import NODE
from tests.support.broken_driver import FrontCall
from tests.support.kit_drivers import GoodDriver

NO_MESSAGE: Final = b"\xff\xff\xff no message"


def changed(change: Callable[[Any], None]) -> Callable[[FrontCall], Awaitable[Any]]:
    """A front that changes every answer."""

    async def spoil(call: FrontCall) -> Any:
        response = await call.forward()
        change(response)
        return response

    return spoil


def each_device(change: Callable[[Any], None]) -> Callable[[FrontCall], Awaitable[Any]]:
    def change_all(response: Any) -> None:
        for entry in response.claims.values():
            for found in entry.devices:
                change(found)

    return changed(change_all)


def with_errors(text: str) -> Callable[[FrontCall], Awaitable[Any]]:
    def set_error(response: Any) -> None:
        for entry in response.claims.values():
            entry.error = text

    return changed(set_error)


def drop_first_entry(response: Any) -> None:
    if len(response.claims) > 1:
        del response.claims[next(iter(response.claims))]


async def from_second_call_on(call: FrontCall) -> Any:
    """A second call for a claim is an error."""
    response = await call.forward()
    seen = call.memory.setdefault(call.method, set())
    for uid, entry in response.claims.items():
        if uid in seen:
            entry.error = "already done"
        seen.add(uid)
    return response


async def new_names_every_time(call: FrontCall) -> Any:
    response = await call.forward()
    for entry in response.claims.values():
        for found in entry.devices:
            found.cdi_device_ids[:] = [f"example.com/gpu=n{call.number}"]
    return response


async def one_at_a_time(call: FrontCall) -> Any:
    """Refuses a concurrent call; the first call lasts until there is one."""
    turned_away: asyncio.Event | None = call.memory.get("busy")
    if turned_away is not None:
        turned_away.set()
        return await call.fail("busy")
    call.memory["busy"] = turned_away = asyncio.Event()
    await turned_away.wait()
    return await call.forward()


async def stuck_after_hang_up(call: FrontCall) -> Any:
    """A cancelled call leaves a marker that is never cleared."""
    uid = call.request.claims[0].uid if call.request.claims else ""
    if uid in call.memory:
        return await call.fail("preparation is in progress")
    call.memory[uid] = True
    await asyncio.sleep(1.0)
    response = await call.forward()
    del call.memory[uid]
    return response


async def stuck_while_frozen(call: FrontCall) -> Any:
    """A call that was given up leaves a marker."""
    if call.memory.get("begun"):
        return await call.fail("preparation is in progress")
    call.memory["begun"] = True
    response = await call.forward()
    call.memory["begun"] = False
    return response


async def other_devices_in_the_old_version(call: FrontCall) -> Any:
    response = await call.forward()
    if call.service is DRA_V1BETA1:
        for entry in response.claims.values():
            del entry.devices[:]
    return response


async def says_yes_to_everything(call: FrontCall) -> Any:
    response = await call.forward()
    for entry in response.claims.values():
        entry.error = ""
    return response


async def knows_claims_by_name(call: FrontCall) -> Any:
    """Prepares the claim that has the name now."""
    messages = call.messages
    real = {}
    for claim in call.request.claims:
        try:
            found = await call.client.get(ResourceClaim, claim.name, namespace=claim.namespace)
            real[found.metadata.uid] = claim.uid
        except NotFound:
            real[claim.uid] = claim.uid
    renamed = messages.NodePrepareResourcesRequest(
        claims=[
            messages.Claim(namespace=claim.namespace, name=claim.name, uid=uid)
            for claim, uid in zip(call.request.claims, real, strict=True)
        ]
    )
    response = await call.forward(renamed)
    answer = messages.NodePrepareResourcesResponse()
    for uid, entry in response.claims.items():
        answer.claims[real[uid]].CopyFrom(entry)
    return answer


async def answers_for_all_drivers(call: FrontCall) -> Any:
    response = await call.forward()
    for claim in call.request.claims:
        found = await call.client.get(ResourceClaim, claim.name, namespace=claim.namespace)
        assert found.status.allocation is not None
        for result in found.status.allocation.devices.results:
            if result.driver != GoodDriver.name:
                response.claims[claim.uid].devices.add(pool_name=result.pool, device_name=result.device)
    return response


async def sub_requests_as_allocated(call: FrontCall) -> Any:
    response = await call.forward()
    for claim in call.request.claims:
        found = await call.client.get(ResourceClaim, claim.name, namespace=claim.namespace)
        assert found.status.allocation is not None
        for answered in response.claims[claim.uid].devices:
            answered.request_names[:] = [result.request for result in found.status.allocation.devices.results]
    return response


async def one_bad_apple_spoils_all_for_ever(call: FrontCall) -> Any:
    response = await call.forward()
    if any(entry.error for entry in response.claims.values()):
        call.memory["spoilt"] = True
    if call.memory.get("spoilt"):
        for entry in response.claims.values():
            entry.error = entry.error or "neighbour failed"
    return response


async def one_bad_apple_fails_the_call(call: FrontCall) -> Any:
    """As Kubernetes' helper library does."""
    response = await call.forward()
    for entry in response.claims.values():
        if entry.error:
            await call.fail(f"get resource claims: {entry.error}")
    return response


async def releases_the_whole_device(call: FrontCall) -> Any:
    call.memory["released"] = True
    return await call.forward()


async def forgets_shares_after_release(call: FrontCall) -> Any:
    response = await call.forward()
    if call.memory.get("released"):
        for entry in response.claims.values():
            del entry.devices[:]
    return response


async def needs_the_claim(call: FrontCall) -> Any:
    """Reads the claim to know what to undo."""
    response = await call.forward()
    for claim in call.request.claims:
        try:
            await call.client.get(ResourceClaim, claim.name, namespace=claim.namespace)
        except NotFound as error:
            response.claims[claim.uid].error = str(error)
    return response


async def needs_to_have_prepared(call: FrontCall) -> Any:
    response = await call.forward()
    known = call.memory.setdefault("known", set())
    for claim in call.request.claims:
        if call.method == "NodePrepareResources":
            known.add(claim.uid)
        elif claim.uid not in known:
            response.claims[claim.uid].error = "not prepared"
    return response


async def never_again(call: FrontCall) -> Any:
    """A released claim cannot be prepared again."""
    response = await call.forward()
    released = call.memory.setdefault("released", set())
    for claim in call.request.claims:
        if call.method == "NodeUnprepareResources":
            released.add(claim.uid)
        elif claim.uid in released:
            response.claims[claim.uid].error = "already used up"
    return response


async def in_progress_after_restart(call: FrontCall) -> Any:
    """An interrupted preparation is an error forever."""
    if call.number == 1:
        await asyncio.sleep(30)
    return await call.fail("preparation is in progress")


async def garbage(call: FrontCall) -> Any:
    return NO_MESSAGE


async def garbage_stream(call: FrontCall) -> AsyncIterator[Any]:
    yield NO_MESSAGE
    await asyncio.sleep(30)


async def nothing(call: FrontCall) -> AsyncIterator[Any]:
    await asyncio.sleep(30)
    yield


def always_this_health(device: str, *, health: int, at: int) -> Callable[[FrontCall], AsyncIterator[Any]]:
    async def watched(call: FrontCall) -> AsyncIterator[Any]:
        kinds = call.messages
        identifier = kinds.DeviceIdentifier(pool_name=NODE, device_name=device)
        told = kinds.DeviceHealth(device=identifier, health=health, last_updated_time=at)
        yield kinds.NodeWatchResourcesResponse(devices=[told])
        await asyncio.sleep(30)

    return watched


a_stranger = always_this_health("nobody", health=1, at=1_800_000_000)
milliseconds = always_this_health("gpu-0", health=7, at=1_800_000_000_000)


async def one_stream_only(call: FrontCall) -> AsyncIterator[Any]:
    if call.number > 1:
        await call.fail("there is a stream already")
    async for message in call.service.callable_on(call.channel, call.method)(call.request):
        yield message


def forget_everything(number: int, settings: Settings) -> None:
    if number > 1:
        shutil.rmtree(settings.data_dir(GoodDriver.name) / "claims", ignore_errors=True)


# --- Known faults of real drivers -----------------------------------------------------------------------------------


async def ends_late(call: FrontCall) -> Any:
    """Goes on after its caller has given up, and does not learn that the claim was released."""

    async def work() -> Any:
        await asyncio.sleep(0.3 if call.context.time_remaining() < 1.0 else 0.0)
        return await call.forward()

    return await asyncio.shield(asyncio.create_task(work()))


async def only_says_that_it_released(call: FrontCall) -> Any:
    response = call.messages.NodeUnprepareResourcesResponse()
    for claim in call.request.claims:
        response.claims[claim.uid].SetInParent()
    return response


async def records_all_results(call: FrontCall) -> Any:
    for claim in call.request.claims:
        found = await call.client.get(ResourceClaim, claim.name, namespace=claim.namespace)
        record = call.settings.data_dir(GoodDriver.name) / "results.json"
        record.write_text(str(found.status.allocation))
    return await call.forward()


async def remembers_failures(call: FrontCall) -> Any:
    """What was prepared half-way can be neither prepared nor released."""
    response = await call.forward()
    failed = call.memory.setdefault("failed", set())
    for uid, entry in response.claims.items():
        if call.method == "NodePrepareResources" and entry.error:
            failed.add(uid)
        elif uid in failed:
            entry.error = "the claim is partially prepared"
    return response


async def refuses_what_is_being_deleted(call: FrontCall) -> Any:
    response = await call.forward()
    for claim in call.request.claims:
        with suppress(NotFound):
            found = await call.client.get(ResourceClaim, claim.name, namespace=claim.namespace)
            if found.metadata.deletion_timestamp:
                response.claims[claim.uid].error = "the claim is being deleted"
    return response


async def holds_claims_with_a_finalizer(call: FrontCall) -> Any:
    response = await call.forward()
    for claim in call.request.claims:
        with suppress(ApiError):
            change = {"metadata": {"finalizers": ["gpu.example.com/driver"]}}
            await call.client.patch(ResourceClaim, claim.name, change, namespace=claim.namespace)
    return response


def always_generation_1(request: ClientRequest) -> ClientRequest:
    if "/resourceslices" not in request.path or not request.body:
        return request
    body = msgspec.json.decode(request.body)
    if "spec" in body:
        body["spec"]["pool"]["generation"] = 1
    return msgspec.structs.replace(request, body=msgspec.json.encode(body))


async def delete_all_slices(client: AsyncClient) -> None:
    for item in await client.list(ResourceSlice, fields=f"spec.driver={GoodDriver.name}"):
        if item.spec.node_name != NODE:
            await client.delete(ResourceSlice, item.metadata.name)


async def publish_for_another_node(client: AsyncClient) -> None:
    spec = ResourceSliceSpec(
        driver=GoodDriver.name, node_name="n9", pool=ResourcePool(name="n9", generation=1, resource_slice_count=1)
    )
    with suppress(AlreadyExists):
        await client.create(ResourceSlice(metadata=ObjectMeta(name="of-n9"), spec=spec))


def one_entry_for_each_device(response: Any) -> None:
    for entry in response.claims.values():
        by_name = {found.device_name: found for found in entry.devices}
        kept = list(by_name.values())
        del entry.devices[:]
        entry.devices.extend(kept)


async def says_it_once(call: FrontCall) -> AsyncIterator[Any]:
    async for message in call.service.callable_on(call.channel, call.method)(call.request):
        yield message
        await asyncio.sleep(30)


async def gives_up_soon(call: FrontCall) -> Any:
    try:
        async with asyncio.timeout(0.2):
            return await call.forward()
    except TimeoutError:
        return await call.fail("the API server does not answer")


async def succeeds_without_files(call: FrontCall) -> Any:
    response = await call.forward()
    for entry in response.claims.values():
        if entry.error:
            entry.error = ""
            entry.devices.add(pool_name=NODE, device_name="gpu-0", cdi_device_ids=["k8s.gpu.example.com/claim=x"])
    return response
