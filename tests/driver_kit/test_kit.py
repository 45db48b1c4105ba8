"""The conformance kit: a good driver passes all checks, and each kind of violation is found by its check."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dralloc.api.meta_v1 import ObjectMeta
from dralloc.api.resource_v1 import ResourceClaim, ResourcePool, ResourceSlice, ResourceSliceSpec
from dralloc.client.async_client import AsyncClient
from dralloc.client.transport import ClientRequest
from dralloc.driver import (
    AllocatedClaim,
    DeviceHealth,
    Driver,
    Health,
    Pool,
    PreparedDevice,
    capacity,
    counter_set,
    device,
)
from dralloc.driver.settings import Settings
from dralloc.driver_kit.check import Check, CheckOutcome, CheckResult
from dralloc.driver_kit.check_runner import run_checks
from dralloc.driver_kit.checks import ALL
from dralloc.driver_kit.claim_maker import exactly
from dralloc.driver_kit.driver_traces import DriverTraces
from dralloc.driver_kit.driver_under_test import DriverUnderTest, InjectableFaults, Patience
from dralloc.driver_kit.findings import Finding, Remark
from dralloc.primitives.errors import AlreadyExists, ApiError, NotFound
from dralloc.rpc.plugin_services import DRA_V1, DRA_V1BETA1
from dralloc.testing.driver_bench import NODE, bench_server, bench_settings
from tests.support.broken_driver import Broken, BrokenDriver, FrontCall, running_broken

PATIENT = Patience(settle_s=0.1, cleanup_s=20.0)
# For events that never happen.
QUICK = Patience(start_s=5.0, repair_s=1.0, health_s=0.3, recovery_s=0.5, settle_s=0.1, cleanup_s=0.5)
BY_ID = {check.id: check for check in ALL}
NO_MESSAGE = b"\xff\xff\xff no message"


@dataclass(frozen=True)
class Hardware:
    """The devices that were lost."""

    lost: set[str] = field(default_factory=set)

    async def lose(self, pool: str, device: str) -> None:
        self.lost.add(device)

    async def restore(self, pool: str, device: str) -> bool:
        self.lost.discard(device)
        return True


class GoodDriver(Driver):
    """A driver with two shareable cards, a card with two partitions, and health."""

    name = "gpu.example.com"
    partition_memory = "40Gi"

    def __init__(self, hardware: Hardware, *names: str) -> None:
        self._hardware = hardware
        self._names = names or ("gpu-0", "gpu-1")
        self._halves = ("half-0", "half-1")

    def devices(self) -> Iterable[Pool]:
        memory = capacity("80Gi", default="10Gi", minimum="1Gi", step="1Gi")
        cards = [device(name, shareable=True, capacity={"memory": memory}) for name in self._names]
        halves = [device(name, draws={"card": {"memory": self.partition_memory}}) for name in self._halves]
        return [Pool(name=NODE, devices=(*cards, *halves), counters=(counter_set("card", memory="80Gi"),))]

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        return [found.prepared(env={"GPU": found.name}) for found in claim.devices]

    def health(self) -> Iterable[DeviceHealth]:
        return [
            DeviceHealth(device=name, health=Health.UNHEALTHY if name in self._hardware.lost else Health.HEALTHY)
            for name in (*self._names, *self._halves)
        ]


class TooLargePartitions(GoodDriver):
    partition_memory = "90Gi"


class AlwaysHealthy(GoodDriver):
    def health(self) -> Iterable[DeviceHealth]:
        return [replace(each, health=Health.HEALTHY) for each in super().health()]


def results_of(
    directory: Path,
    checks: Iterable[Check],
    broken: Broken | None = None,
    *,
    make_driver: Callable[[Hardware, int], Driver] = lambda hardware, _: GoodDriver(hardware),
    settings: dict[str, Any] | None = None,
    patience: Patience = PATIENT,
) -> list[CheckResult]:
    """The results for a driver with this fault."""

    async def run() -> list[CheckResult]:
        usual = {"repair_delay_s": 0.05, "health_interval_s": 0.1, "cdi_dir": directory / "cdi"}
        inner = bench_settings(directory / "in", **{**usual, **(settings or {})})
        hardware = Hardware()
        front = directory / "front"
        front.mkdir()
        async with bench_server() as transport:
            tested = BrokenDriver(partial(make_driver, hardware), broken or Broken(), transport, inner, front)
            async with running_broken(tested):
                subject = DriverUnderTest(
                    place=front / "driver-reg.sock",
                    node_name=NODE,
                    patience=patience,
                    client=AsyncClient(transport),
                    restarter=tested,
                    traces=DriverTraces(cdi_dirs=(directory / "cdi",), checkpoint=(inner.plugins_dir,)),
                    faults=InjectableFaults(process=tested, api=tested.api, device=hardware),
                    is_alone=True,
                )
                await subject.connect()
                try:
                    return [result async for result in run_checks(subject, list(checks))]
                finally:
                    await subject.disconnect()

    return asyncio.run(run())


@pytest.mark.slow
def test_a_good_driver_passes_all_checks(directory: Path) -> None:
    results = results_of(directory, ALL, settings={"vanished_after_s": 0.2})
    assert [(result.check.id, result.findings, result.skipped) for result in results] == [
        (check.id, (), "") for check in ALL
    ]


# --- InjectableFaults -------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Case:
    id: str
    check: str
    broken: Broken | None = None
    want: str = ""
    make_driver: Callable[[Hardware, int], Driver] = lambda hardware, _: GoodDriver(hardware)
    settings: dict[str, Any] | None = None
    patience: Patience = PATIENT


def set_field(name: str, value: Any) -> Callable[[Any], None]:
    return lambda message: setattr(message, name, value)


NUMBERS = count()
CASES = [
    Case("a stale preparation", "checkpoint.stale-prepare", Broken(prepare=ends_late), "ended after the claim was"),
    Case(
        "remembers released claims",
        "checkpoint.released",
        Broken(unprepare=only_says_that_it_released),
        "still names the claim's UID",
    ),
    Case("remembers deleted claims", "checkpoint.deleted", want="which was deleted", patience=QUICK),
    Case(
        "records devices of others",
        "checkpoint.foreign",
        Broken(prepare=records_all_results),
        "of driver other.driver-test.example.com as a prepared device",
    ),
    Case(
        "half of a preparation blocks",
        "prepare.rollback",
        Broken(prepare=remembers_failures, unprepare=remembers_failures),
        "the claim is partially prepared",
    ),
    Case("prepares a missing device", "prepare.rollback", Broken(prepare=says_yes_to_everything), "does not exist"),
    Case(
        "refuses claims that are being deleted",
        "unprepare.terminating",
        Broken(unprepare=refuses_what_is_being_deleted),
        "the claim is being deleted",
    ),
    Case(
        "holds claims",
        "unprepare.terminating",
        Broken(prepare=holds_claims_with_a_finalizer),
        "finalizer gpu.example.com/driver of the driver keeps the released claim",
    ),
    Case(
        "always the same generation",
        "slices.generation",
        Broken(rewrite=always_generation_1),
        "has generation 1",
        patience=QUICK,
    ),
    Case("deletes the slices of all", "slices.other-nodes", Broken(when_running=delete_all_slices), "was deleted by"),
    Case("publishes for others", "slices.other-nodes", Broken(when_running=publish_for_another_node), "is for node n9"),
    Case(
        "one share of a device",
        "prepare.two-shares",
        Broken(prepare=changed(one_entry_for_each_device)),
        "1 devices for 2 shares",
    ),
    Case(
        "all is well",
        "faults.device-lost",
        make_driver=lambda hardware, _: AlwaysHealthy(hardware),
        want="still reported as healthy",
        patience=QUICK,
    ),
    Case("says it once", "health.refresh", Broken(health=says_it_once), "is not repeated", patience=QUICK),
    Case(
        "partitions that never fit",
        "partitions.counters",
        make_driver=lambda hardware, _: TooLargePartitions(hardware),
        want="half-0 can never be allocated: it consumes 90Gi of card/memory, which has 80Gi",
    ),
    Case(
        "resets the card",
        "partitions.neighbours",
        Broken(prepare=forgets_shares_after_release, unprepare=releases_the_whole_device),
        "after another partition",
    ),
    Case(
        "stuck after it stood still",
        "faults.slow-driver",
        Broken(prepare=stuck_while_frozen),
        "in progress",
        patience=QUICK,
    ),
    Case("impatient with the API server", "faults.api-slow", Broken(prepare=gives_up_soon), "does not answer"),
    Case("releases by the API server", "faults.api-away", Broken(unprepare=needs_the_claim), "a call failed"),
    Case("success without files", "faults.disk-full", Broken(prepare=succeeds_without_files), "no CDI file describes"),
    Case("another type", "registration.info", Broken(get_info=changed(set_field("type", "CSIPlugin"))), "CSIPlugin"),
    Case(
        "a bad name",
        "registration.info",
        Broken(get_info=changed(set_field("name", "Not A Name"))),
        "the name is",
        patience=QUICK,
    ),
    Case(
        "no version that a kubelet supports",
        "registration.info",
        Broken(get_info=changed(lambda info: info.supported_versions.__setitem__(slice(None), ["v1alpha4.Node"]))),
        "v1alpha4.Node",
    ),
    Case(
        "another answer every time",
        "registration.repeat",
        Broken(get_info=changed(lambda info: info.supported_versions.append(f"v{next(NUMBERS)}.X"))),
        "two calls got different answers",
    ),
    Case(
        "refuses a second notification",
        "registration.status",
        Broken(notify=lambda call: call.forward() if call.number == 1 else call.fail("enough")),
        "INTERNAL: enough",
    ),
    Case(
        "garbage",
        "registration.status",
        Broken(notify=lambda call: call.forward() if call.number == 1 else garbage(call)),
        "the answer to NotifyRegistrationStatus cannot be decoded",
    ),
    Case("advertises what it does not serve", "registration.versions", Broken(served=(DRA_V1,)), "UNIMPLEMENTED"),
    Case("an error", "prepare.answer", Broken(prepare=with_errors("no")), "failed: no"),
    Case("a failing call", "prepare.answer", Broken(prepare=lambda call: call.fail("broken")), "INTERNAL: broken"),
    Case("garbage", "prepare.answer", Broken(prepare=garbage), "the answer to NodePrepareResources cannot be decoded"),
    Case(
        "another device",
        "prepare.answer",
        Broken(prepare=each_device(set_field("device_name", "gpu-7"))),
        "gpu-7 is not allocated",
    ),
    Case("another pool", "prepare.answer", Broken(prepare=each_device(set_field("pool_name", "x"))), "x/gpu-0 is not"),
    Case(
        "another request",
        "prepare.answer",
        Broken(prepare=each_device(lambda found: found.request_names.append("extra"))),
        "not for 'extra'",
    ),
    Case(
        "no share", "prepare.answer", Broken(prepare=each_device(lambda found: found.ClearField("share_id"))), "share"
    ),
    Case(
        "an invalid CDI name",
        "prepare.answer",
        Broken(prepare=each_device(lambda found: found.cdi_device_ids.append("gpu0"))),
        "'gpu0' is not a CDI device name",
    ),
    Case(
        "an entry for another claim",
        "prepare.answer",
        Broken(prepare=changed(lambda response: response.claims["stranger"].SetInParent())),
        "was not in the call",
    ),
    Case("no entry", "prepare.answer", Broken(prepare=changed(lambda response: response.claims.clear())), "no entry"),
    Case(
        "missing CDI files",
        "prepare.cdi",
        settings={"cdi_dir": Path("/tmp/dralloc-elsewhere")},
        want="no CDI file describes",
    ),
    Case("other names every time", "prepare.repeat", Broken(prepare=new_names_every_time), "the answers differ"),
    Case("fails when asked again", "prepare.repeat", Broken(prepare=from_second_call_on), "already done"),
    Case("turns others away", "prepare.concurrent", Broken(prepare=one_at_a_time), "busy"),
    Case("stuck after a hang-up", "prepare.impatient", Broken(prepare=stuck_after_hang_up), "in progress"),
    Case(
        "versions differ",
        "prepare.versions",
        Broken(prepare=other_devices_in_the_old_version),
        "calls in both versions",
    ),
    Case("alternatives", "prepare.alternative", Broken(prepare=sub_requests_as_allocated), "is a subrequest"),
    Case(
        "the share of another",
        "prepare.shares",
        Broken(prepare=each_device(set_field("share_id", "00000000-0000-4000-8000-000000000000"))),
        "the share ID is 00000000",
    ),
    Case(
        "releases more than one share",
        "prepare.shares",
        Broken(prepare=forgets_shares_after_release, unprepare=releases_the_whole_device),
        "after another share was released",
    ),
    Case("forgets a claim of several", "prepare.batch", Broken(prepare=changed(drop_first_entry)), "no entry"),
    Case("prepares for others", "prepare.foreign", Broken(prepare=answers_for_all_drivers), "is not allocated"),
    Case("prepares what is not there", "prepare.unknown", Broken(prepare=says_yes_to_everything), "does not exist"),
    Case("does not look at UIDs", "prepare.replaced", Broken(prepare=knows_claims_by_name), "created again"),
    Case("prepares nothing", "prepare.unallocated", Broken(prepare=says_yes_to_everything), "not allocated"),
    Case(
        "never recovers from a bad claim",
        "prepare.partial",
        Broken(prepare=one_bad_apple_spoils_all_for_ever),
        "neighbour failed",
    ),
    Case("cannot release", "unprepare.answer", Broken(unprepare=with_errors("in use")), "in use"),
    Case(
        "garbage",
        "unprepare.answer",
        Broken(unprepare=garbage),
        "the answer to NodeUnprepareResources cannot be decoded",
    ),
    Case("releases once", "unprepare.repeat", Broken(unprepare=from_second_call_on), "already done"),
    Case("releases what it knows", "unprepare.unknown", Broken(unprepare=needs_the_claim), "unknown"),
    Case(
        "releases what it prepared",
        "unprepare.never-prepared",
        Broken(prepare=needs_to_have_prepared, unprepare=needs_to_have_prepared),
        "not prepared",
    ),
    Case("reads the claim to release it", "unprepare.gone", Broken(unprepare=needs_the_claim), "after its deletion"),
    Case("forgets to answer", "unprepare.batch", Broken(unprepare=changed(drop_first_entry)), "no entry"),
    Case(
        "prepares a claim once in its life",
        "unprepare.again",
        Broken(prepare=never_again, unprepare=never_again),
        "already used up",
    ),
    Case("sends no health", "health.first", Broken(health=nothing), "no message arrived", patience=QUICK),
    Case("invalid times and health values", "health.first", Broken(health=milliseconds), "not in seconds since 1970"),
    Case(
        "garbage", "health.first", Broken(health=garbage_stream), "the answer to NodeWatchResources cannot be decoded"
    ),
    Case("health of strangers", "health.devices", Broken(health=a_stranger), "nobody, which is not published"),
    Case("one stream in its life", "health.reopen", Broken(health=one_stream_only), "there is a stream already"),
    Case(
        "forgets what it prepared",
        "restart.prepared",
        Broken(at_start=forget_everything, prepare=new_names_every_time),
        "before and after a restart",
    ),
    Case("stuck after a restart", "restart.middle", Broken(prepare=in_progress_after_restart), "in progress"),
    Case(
        "needs the claim after a restart",
        "restart.gone",
        Broken(at_start=forget_everything, unprepare=needs_the_claim),
        "after its deletion and a restart",
    ),
    Case(
        "publishes something else after a restart",
        "restart.slices",
        make_driver=lambda hardware, number: GoodDriver(hardware, f"gpu-{number}"),
        want="are not the same after a restart",
        patience=QUICK,
    ),
    Case(
        "does not repair",
        "slices.repair",
        settings={"repair_delay_s": 600.0},
        want="were not republished",
        patience=QUICK,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}: {case.id}")
def test_every_kind_of_violation_is_found(directory: Path, case: Case) -> None:
    (result,) = results_of(
        directory,
        [BY_ID[case.check]],
        case.broken,
        make_driver=case.make_driver,
        settings=case.settings,
        patience=case.patience,
    )
    assert result.outcome is CheckOutcome.FAILED, f"{result.skipped or 'it passed'}"
    assert any(case.want in finding.text for finding in result.findings), result.findings


# The checks that find a fault which real drivers have, and what else each broken driver fails.
KNOWN_FAULTS = [check for check in ALL if check.known_fault]
ALSO_FAILED = {"prepare.shares": {"prepare.two-shares"}}


@pytest.mark.slow
@pytest.mark.parametrize("check", KNOWN_FAULTS, ids=lambda check: check.id)
def test_a_known_fault_is_found_by_its_check_alone(directory: Path, check: Check) -> None:
    case = next(case for case in CASES if case.check == check.id)
    results = results_of(
        directory,
        KNOWN_FAULTS,
        case.broken,
        make_driver=case.make_driver,
        settings={"vanished_after_s": 600.0 if check.id == "checkpoint.deleted" else 0.1, **(case.settings or {})},
        patience=replace(QUICK, cleanup_s=0.5 if check.id == "checkpoint.deleted" else 10.0),
    )
    failed = {result.check.id for result in results if result.outcome is CheckOutcome.FAILED}
    assert failed == {check.id} | ALSO_FAILED.get(check.id, set()), [result.findings for result in results]
    assert all(result.findings or not result.skipped for result in results)


def test_the_faults_of_the_field_are_all_known() -> None:
    assert {check.known_fault for check in KNOWN_FAULTS} == {
        "stale prepare after unprepare",
        "deleted claims left in the checkpoint",
        "claims of several drivers pollute the checkpoint",
        "partial failure that blocks rollback",
        "zombie claims with finalizers",
        "wrong generation on republish",
        "slices of other nodes",
        "shareID ignored",
        "health that lies",
    }
    assert {check.injects for check in ALL} >= {
        "driver slow",
        "driver dead and restarted",
        "driver killed during a call",
        "disk full",
        "device lost",
        "API server away",
        "API server slow",
    }


def test_every_check_has_a_violation_that_it_finds() -> None:
    checked_apart = {"slices.published", "slices.history"}
    assert {case.check for case in CASES} | checked_apart == set(BY_ID)


@pytest.mark.slow
def test_failing_the_whole_call_as_the_kubernetes_helper_does_is_a_remark(directory: Path) -> None:
    (result,) = results_of(directory, [BY_ID["prepare.partial"]], Broken(prepare=one_bad_apple_fails_the_call))
    assert result.outcome is CheckOutcome.REMARKED
    assert [type(finding) for finding in result.findings] == [Remark]


@pytest.mark.slow
def test_claims_are_deleted_if_the_driver_cannot_release_them(directory: Path) -> None:
    """A driver without a supported version cannot be called to release claims."""

    async def count_claims(subject: DriverUnderTest) -> Iterable[Finding]:
        return [Remark(f"{len(await subject.server.list(ResourceClaim))} claims")]

    none = Broken(get_info=changed(lambda info: info.supported_versions.__setitem__(slice(None), ["v1alpha4.Node"])))
    counting = replace(BY_ID["prepare.answer"], run=count_claims)
    first, second = results_of(directory, [BY_ID["prepare.answer"], counting], none)
    assert first.skipped == "the driver advertises no version that a kubelet supports"
    assert second.findings == (Remark("0 claims"),)


@pytest.mark.slow
def test_a_claim_that_cannot_be_allocated_is_explained(directory: Path) -> None:
    async def ask_for_many(subject: DriverUnderTest) -> Iterable[Finding]:
        await subject.claim([exactly("many", subject.claims.class_name, count=30)])
        return []

    (result,) = results_of(directory, [replace(BY_ID["prepare.answer"], run=ask_for_many)])
    assert result.skipped.startswith("no devices of gpu.example.com fit claim driver-test-1: ")
    assert "Impossible" not in result.skipped


@pytest.mark.slow
def test_checks_without_claims_run_without_an_api_server(directory: Path) -> None:
    async def run() -> list[CheckResult]:
        front = directory / "front"
        front.mkdir()
        async with bench_server() as transport:
            inner = bench_settings(directory / "in")
            tested = BrokenDriver(lambda _: GoodDriver(Hardware()), Broken(), transport, inner, front)
            async with running_broken(tested):
                # The service socket itself.
                subject = DriverUnderTest(place=front / "dra.sock", node_name=NODE)
                await subject.connect()
                try:
                    return [result async for result in run_checks(subject, ALL)]
                finally:
                    await subject.disconnect()

    outcomes = {result.check.id: result.outcome for result in asyncio.run(run())}
    assert {check for check, outcome in outcomes.items() if outcome is CheckOutcome.PASSED} == {
        "registration.versions",
        "prepare.unknown",
        "unprepare.unknown",
    }
    assert CheckOutcome.FAILED not in outcomes.values()
