"""A driver with real sockets and a real API server, called as a kubelet does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dralloc.driver import (
    AllocatedClaim,
    Condition,
    Device,
    DeviceNode,
    DriverFunctions,
    Mount,
    NetworkDeviceData,
    PreparedDevice,
    device,
)
from dralloc.driver.checkpoint import Checkpoint
from dralloc.driver.plugin import Plugin
from dralloc.driver.settings import BadDriverSettings
from dralloc.driver.slices import InvalidPools
from dralloc.driver_kit.caller import AnsweredDevice, ClaimName, RpcFailed, calling
from dralloc.driver_kit.claim_maker import CannotAllocate, exactly
from dralloc.node.kubelet.cdi import ContainerEdits
from dralloc.primitives.quantity import Quantity
from dralloc.rpc.plugin_services import DRA_V1, DRA_V1BETA1
from dralloc.testing.builders import alternative, first_available
from dralloc.testing.driver_bench import DriverBench, bench_on, bench_server, bench_settings, driver_bench
from tests.driver.memory_driver import (
    MemoryDriver,
    SlowClaims,
    on_bench,
    share_of,
    shared_claim,
    whole_claim,
)
from tests.support.limited_files import files_of_at_most

# --- Preparing and unpreparing ------------------------------------------------------------------------------------


def test_a_claim_is_prepared_once_and_answered_every_time(directory: Path) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        claim = await shared_claim(bench, "c")
        name = bench.name_of(claim)
        answers = await bench.caller.prepare([name])
        cdi_id = f"k8s.gpu.example.com/claim={name.uid}-0"
        assert answers[name.uid].error == ""
        assert answers[name.uid].devices == (AnsweredDevice(("gpu",), "node-a", "gpu-0", (cdi_id,), share_of(claim)),)
        (document,) = bench.cdi_documents().values()
        assert document["devices"][0]["containerEdits"]["env"] == ["GPU=gpu-0", "MEMORY=3Gi"]
        assert f"{document['kind']}={document['devices'][0]['name']}" == cdi_id
        for _ in range(2):
            assert await bench.caller.prepare([name]) == answers
        for _ in range(2):
            assert (await bench.caller.unprepare([name]))[name.uid].error == ""
        assert bench.cdi_documents() == {}
        assert driver.log == ["prepare c", "unprepare c ['gpu-0']"]

    on_bench(directory, scenario)


def test_both_versions_give_the_same_answer_except_share_ids(directory: Path) -> None:
    async def scenario(bench: DriverBench, _driver: MemoryDriver) -> None:
        claim = await shared_claim(bench, "c")
        name = bench.name_of(claim)
        (new,) = (await bench.caller.prepare([name], DRA_V1))[name.uid].devices
        (old,) = (await bench.caller.prepare([name], DRA_V1BETA1))[name.uid].devices
        assert (new.requests, new.pool, new.device, new.cdi_device_ids) == (
            old.requests,
            old.pool,
            old.device,
            old.cdi_device_ids,
        )
        assert (new.share_id, old.share_id) == (share_of(claim), None)
        assert (await bench.caller.unprepare([name], DRA_V1BETA1))[name.uid].error == ""

    on_bench(directory, scenario)


def test_a_bad_claim_does_not_fail_the_others_of_the_call(directory: Path) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        def fail_bad(claim: AllocatedClaim) -> None:
            if claim.name == "bad":
                raise RuntimeError("the card is on fire")

        driver.before_prepare = fail_bad
        good, bad = [bench.name_of(await shared_claim(bench, name)) for name in ("good", "bad")]
        unallocated = await bench.claims.create("unallocated", [exactly("gpu", bench.class_name)])
        waiting = bench.name_of(unallocated)
        missing = ClaimName("default", "missing", "00000000-0000-4000-8000-000000000000")
        replaced = ClaimName("default", "good", "00000000-0000-4000-8000-000000000001")
        answers = await bench.caller.prepare([bad, missing, good, waiting, replaced])
        assert {claim.name: answers[claim.uid].error for claim in (bad, missing, waiting)} == {
            "bad": f"test_plugin.py, line {fail_bad.__code__.co_firstlineno + 2}: RuntimeError: the card is on fire",
            "missing": "claim default/missing does not exist",
            "unallocated": "claim default/unallocated is not allocated",
        }
        assert "was replaced" in answers[replaced.uid].error
        assert (answers[good.uid].error, len(answers[good.uid].devices)) == ("", 1)
        driver.before_prepare = lambda _: None
        assert (await bench.caller.prepare([bad]))[bad.uid].error == "", "the next try may succeed"

    on_bench(directory, scenario)


def test_a_subrequest_is_answered_with_its_main_request(directory: Path) -> None:
    async def scenario(bench: DriverBench, _driver: MemoryDriver) -> None:
        claim = await bench.claim(
            "c",
            first_available("gpu", *(alternative(name, device_class=bench.class_name) for name in ("large", "small"))),
        )
        assert claim.status.allocation is not None
        assert claim.status.allocation.devices.results[0].request == "gpu/large"
        name = bench.name_of(claim)
        (found,) = (await bench.caller.prepare([name]))[name.uid].devices
        assert found.requests == ("gpu",)

    on_bench(directory, scenario)


def test_unpreparing_needs_no_claim(directory: Path) -> None:
    """The claim may be deleted or unknown."""

    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        claim = await shared_claim(bench, "c")
        name = bench.name_of(claim)
        await bench.caller.prepare([name])
        await bench.claims.delete(claim)
        strangers = [ClaimName("default", "x", uid) for uid in ("00000000-0000-4000-8000-000000000000", "../../x", "")]
        answers = await bench.caller.unprepare([name, *strangers])
        assert {answer.error for answer in answers.values()} == {""}
        assert answers.keys() == {name.uid, *(stranger.uid for stranger in strangers)}
        assert driver.log == ["prepare c", "unprepare c ['gpu-0']"]

    on_bench(directory, scenario)


def test_a_device_that_is_not_shared_belongs_to_one_claim(directory: Path) -> None:
    async def scenario(bench: DriverBench, _driver: MemoryDriver) -> None:
        first = await whole_claim(bench, "first")
        with pytest.raises(CannotAllocate):
            await whole_claim(bench, "second")
        assert (await bench.caller.prepare([bench.name_of(first)]))[first.metadata.uid].error == ""
        # The claim is deleted without an unprepare call, and its device is allocated to another claim.
        await bench.claims.delete(first)
        second = await whole_claim(bench, "second")
        answers = await bench.caller.prepare([bench.name_of(second)])
        assert answers[second.metadata.uid].error == (
            "claim default/second: device node-a/whole is in use by claim default/first"
        )
        await bench.caller.unprepare([bench.name_of(first)])
        assert (await bench.caller.prepare([bench.name_of(second)]))[second.metadata.uid].error == ""

    on_bench(directory, scenario)


def test_a_driver_gets_the_other_claims_and_its_state(directory: Path) -> None:
    async def scenario(bench: DriverBench, _driver: MemoryDriver) -> None:
        for name in ("a", "b"):
            await bench.caller.prepare([bench.name_of(await shared_claim(bench, name))])
        remembered = {claim.name: claim.prepared[0].state for claim in await bench.plugin.prepared_claims()}
        assert remembered == {"a": {"call": 1, "others": []}, "b": {"call": 2, "others": ["a"]}}

    on_bench(directory, scenario)


UNKEPT: dict[str, tuple[dict[str, Any], str]] = {
    "a number in env": ({"env": {"N": 5}}, "env N is the int 5; use a str"),
    "nothing in env": ({"env": {"N": None}}, "env N is None; use a str"),
    "bytes in env": ({"env": {"N": b"x"}}, "env N is the bytes b'x'; use a str"),
    "an amount in env": ({"env": {"N": Quantity.parse("3Gi")}}, "env N is the Quantity"),
    "text that is not UTF-8 in env": ({"env": {"N": "\udcff"}}, "edits.env.N is the str '\\udcff', which is not JSON"),
    "a number as a name in env": ({"env": {5: "x"}}, "the key the int 5 of edits.env is not JSON: use a str"),
    "a list as env": ({"env": ["A=b"]}, "env is the list ['A=b']; use a dict by name"),
    "a path": (
        {"mounts": [Mount(host_path=Path("/a"), container_path="/a")]},  # type: ignore[arg-type]
        "edits.mounts[0].host_path is the PosixPath PosixPath('/a'), which is not JSON",
    ),
    "text as a number": (
        {"device_nodes": [DeviceNode(path="/dev/x", major="8")]},  # type: ignore[arg-type]
        "Expected `int`, got `str` - at `edits.deviceNodes[0].major`",
    ),
    "text as a device node": ({"device_nodes": ["/dev/x"]}, "Expected `object`, got `str` - at `edits.deviceNodes[0]`"),
    "one text as device nodes": ({"device_nodes": "/dev/x"}, "device_nodes is the str '/dev/x'; use a list"),
    "one CDI name": ({"cdi_device_ids": "a.com/b=c"}, "cdi_device_ids is the str 'a.com/b=c'; use a list"),
    "a number as a CDI name": ({"cdi_device_ids": [5]}, "Expected `str`, got `int` - at `cdi_device_ids[0]`"),
    "a bool in a condition": (
        {"conditions": [Condition(type="Ready", status=True)]},  # type: ignore[arg-type]
        "Expected `str`, got `bool` - at `conditions[0].status`",
    ),
    "a number as an address": (
        {"network": NetworkDeviceData(ips=(5,))},  # type: ignore[arg-type]
        "Expected `str`, got `int` - at `network.ips[0]`",
    ),
    "no number in data": ({"data": {"celsius": float("nan")}}, "data.celsius is the float nan, which is not JSON"),
    "bytes in data": ({"data": {"serial": b"x"}}, "data.serial is the bytes b'x', which is not JSON"),
    "a list as data": ({"data": [1]}, "data is the list [1]; use a dict by name"),
    "no number in the state": ({"state": [float("inf")]}, "state[0] is the float inf, which is not JSON"),
    "a number as a key in the state": ({"state": {"a": {1: 2}}}, "the key the int 1 of state.a is not JSON: use a str"),
    "a set as the state": ({"state": {1}}, "state is the set {1}, which is not JSON"),
    "a very large number": ({"state": 2**64}, "state is the int 18446744073709551616, which is not JSON"),
}


@pytest.mark.parametrize(("arguments", "fault"), UNKEPT.values(), ids=UNKEPT)
@pytest.mark.parametrize("way", ["prepared", "direct"])
def test_what_could_not_be_read_back_is_refused_and_the_claim_can_be_released(
    directory: Path, way: str, arguments: dict[str, Any], fault: str
) -> None:
    """Also if the driver makes its answer without `prepared`, which checks it where the driver's author sees it."""

    class Untyped(MemoryDriver):
        def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
            (found,) = claim.devices
            if way == "prepared":
                return [found.prepared(**arguments)]
            edits = ContainerEdits(**{k: v for k, v in arguments.items() if k in ("env", "device_nodes", "mounts")})
            others = {k: v for k, v in arguments.items() if k not in ("env", "device_nodes", "mounts")}
            return [PreparedDevice(key=found.key, requests=(found.request,), edits=edits, **others)]

    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        name = bench.name_of(await shared_claim(bench, "c"))
        error = (await bench.caller.prepare([name]))[name.uid].error
        if way == "prepared":
            assert error.startswith("test_plugin.py, line ")
            assert f"BadArgument: device gpu-0: {fault}" in error
        else:
            assert error.startswith("driver gpu.example.com returned invalid devices: device node-a/gpu-0 (share ")
        assert bench.cdi_documents() == {}
        records = Checkpoint(bench.settings.data_dir(driver.name) / "claims")
        assert (len(records.all()), records.damaged()) == (1, ())
        assert (await bench.caller.unprepare([name]))[name.uid].error == ""
        assert records.all() == ()

    on_bench(directory, scenario, Untyped())


def test_a_report_that_could_not_be_read_back_changes_nothing(directory: Path) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        name = bench.name_of(await shared_claim(bench, "c"))
        await bench.caller.prepare([name])
        (claim,) = await bench.plugin.prepared_claims()
        (before,) = claim.prepared
        for conditions in ((Condition(type="Ready", status=True),), (b"x",)):  # type: ignore[arg-type]
            with pytest.raises((TypeError, ValueError)):
                await bench.plugin.report(claim, [msgspec.structs.replace(before, conditions=conditions)])
        (after,) = await bench.plugin.prepared_claims()
        assert after == claim
        assert (await bench.caller.unprepare([name]))[name.uid].error == ""

    on_bench(directory, scenario)


def test_a_claim_with_a_new_allocation_is_prepared_again(directory: Path) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        claim = await shared_claim(bench, "c")
        name = bench.name_of(claim)
        before = await bench.caller.prepare([name])
        await bench.claims.write_allocation(claim, None)
        await bench.claims.allocate(claim)
        after = await bench.caller.prepare([name])
        assert after[name.uid].devices[0].share_id != before[name.uid].devices[0].share_id
        assert driver.log == ["prepare c", "unprepare c ['gpu-0']", "prepare c"]

    on_bench(directory, scenario)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (lambda claim: None, "not of None"),
        (lambda claim: [object()], "not of <object object"),
        (lambda claim: [PreparedDevice(key=found.key, requests=("x",)) for found in claim.devices], "no request 'x'"),
        (lambda claim: [found.prepared(state={1, 2}.__iter__()) for found in claim.devices], "not JSON"),
        (lambda claim: [claim.devices[0].consumed["watts"]], "KeyError: 'watts'"),
    ],
    ids=["nothing", "something else", "a wrong request", "a state that cannot be written", "an exception"],
)
def test_an_invalid_answer_of_a_driver_fails_only_its_claim(
    directory: Path, answer: Callable[[AllocatedClaim], Iterable[PreparedDevice]], want: str
) -> None:
    class Confused(MemoryDriver):
        def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
            return answer(claim) if claim.name == "bad" else super().prepare(claim)

    async def scenario(bench: DriverBench, _driver: MemoryDriver) -> None:
        bad, good = [bench.name_of(await shared_claim(bench, name)) for name in ("bad", "good")]
        answers = await bench.caller.prepare([bad, good])
        assert want in answers[bad.uid].error
        assert answers[good.uid].error == ""
        assert (await bench.caller.unprepare([bad]))[bad.uid].error == ""

    on_bench(directory, scenario, Confused())


def test_a_full_disk_is_no_fault_of_the_driver(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        name = bench.name_of(await shared_claim(bench, "c"))
        with files_of_at_most(10):
            error = (await bench.caller.prepare([name]))[name.uid].error
        assert error.startswith(f"cannot write {directory}")
        assert error.endswith(f"{name.uid}.json: File too large")
        assert driver.log == []
        assert [record.exc_info for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == [None]
        assert (await bench.caller.prepare([name]))[name.uid].error == ""

    on_bench(directory, scenario)


# --- One at a time ------------------------------------------------------------------------------------------------


def test_calls_do_not_overlap(directory: Path) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        inside = threading.Semaphore(1)

        def check(_claim: AllocatedClaim) -> None:
            assert inside.acquire(blocking=False), "two calls at once"
            inside.release()

        driver.before_prepare = check
        names = [bench.name_of(await shared_claim(bench, f"c{number}")) for number in range(8)]
        answers = await asyncio.gather(
            *(bench.caller.prepare([name], service) for name in names for service in (DRA_V1, DRA_V1BETA1))
        )
        assert all(entry.error == "" for answer in answers for entry in answer.values())
        assert sorted(driver.log) == sorted(f"prepare {name.name}" for name in names), "each once"

    on_bench(directory, scenario)


def test_a_cancelled_call_completes_and_the_next_call_gets_its_result(directory: Path) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        go = threading.Event()

        def wait(_claim: AllocatedClaim) -> None:
            assert go.wait(60)

        driver.before_prepare = wait
        name = bench.name_of(await shared_claim(bench, "slow"))
        with pytest.raises(RpcFailed) as caught:
            await bench.caller.prepare([name], timeout_s=0.05)
        assert caught.value.code == "DEADLINE_EXCEEDED"
        go.set()
        assert (await bench.caller.prepare([name]))[name.uid].error == ""
        assert driver.log == ["prepare slow"]

    on_bench(directory, scenario)


def test_a_claim_that_is_unprepared_while_it_is_read_is_not_prepared_afterwards(directory: Path) -> None:
    """The kubelet does not wait for the end of a prepare call before it unprepares the claim of a deleted pod."""

    async def run() -> None:
        async with bench_server() as transport:
            slow, driver = SlowClaims(transport), MemoryDriver()
            async with bench_on(slow, driver, bench_settings(directory)) as bench:
                name = bench.name_of(await shared_claim(bench, "late"))
                slow.go.clear()
                preparing = asyncio.create_task(bench.caller.prepare([name]))
                await slow.asked.wait()
                assert (await bench.caller.unprepare([name]))[name.uid].error == ""
                slow.go.set()
                assert "unprepared" in (await preparing)[name.uid].error
                assert driver.log == []
                assert (await bench.caller.prepare([name]))[name.uid].error == "", "a later call is another one"

    asyncio.run(run())


# --- Around it ----------------------------------------------------------------------------------------------------


def test_registration_describes_the_driver(directory: Path) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        sockets = bench.settings.sockets(driver.name)
        assert sockets.registration == directory / "registry" / "gpu.example.com-reg.sock"
        async with calling(sockets.registration) as caller:
            info = await caller.get_info()
            assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "gpu.example.com", str(sockets.service))
            assert info.versions == ("v1.DRAPlugin", "v1beta1.DRAPlugin"), "and nothing of health"
            await caller.notify(registered=False, error="no")
            assert (bench.registration.is_registered, bench.registration.error) == (False, "no")
            await caller.notify()
            assert bench.registration.is_registered
        assert 'dra_driver_registered{driver="gpu.example.com"} 1' in bench.plugin.metrics.text()

    on_bench(directory, scenario)
    assert list((directory / "registry").iterdir()) == []
    assert not (directory / "plugins" / "gpu.example.com" / "dra.sock").exists()


def test_metrics_count_calls_claims_and_writes(directory: Path) -> None:
    async def scenario(bench: DriverBench, _driver: MemoryDriver) -> None:
        name = bench.name_of(await shared_claim(bench, "c"))
        await bench.caller.prepare([name])
        await bench.caller.prepare([ClaimName("default", "missing", "x")], DRA_V1BETA1)
        text = bench.plugin.metrics.text()
        for line in (
            'dra_driver_claims_total{driver="gpu.example.com",operation="prepare",outcome="success"} 1',
            'dra_driver_claims_total{driver="gpu.example.com",operation="prepare",outcome="failure"} 1',
            'dra_driver_slice_writes_total{driver="gpu.example.com",verb="create"} 1',
            'dra_driver_prepared_claims{driver="gpu.example.com"} 1',
            'dra_driver_call_duration_seconds_count{driver="gpu.example.com",method="NodePrepareResources",version="v1",outcome="success"} 1',
            'dra_driver_call_duration_seconds_count{driver="gpu.example.com",method="NodePrepareResources",version="v1beta1",outcome="failure"} 1',
        ):
            assert line in text

    on_bench(directory, scenario)


def test_invalid_devices_prevent_the_start(directory: Path) -> None:
    class Faulty(MemoryDriver):
        def devices(self) -> Iterable[Device]:
            return [device("same"), device("same")]

    async def run() -> None:
        async with bench_server() as transport:
            with pytest.raises(InvalidPools, match="same is listed 2 times"):
                async with bench_on(transport, Faulty(), bench_settings(directory)):
                    raise AssertionError("it started")
            async with bench_on(transport, MemoryDriver(), bench_settings(directory)):
                pass

    asyncio.run(run())


def test_an_invalid_driver_name_is_refused(directory: Path) -> None:
    class Nameless(MemoryDriver):
        name = "Not A Name"

    async def run() -> None:
        async with bench_server() as transport:
            with pytest.raises(BadDriverSettings, match="Not A Name"):
                Plugin(Nameless(), bench_settings(directory), transport)

    asyncio.run(run())


def test_functions_make_a_driver(directory: Path) -> None:
    functions = DriverFunctions("gpu.example.com")
    log: list[str] = []

    @functions.devices
    async def devices() -> Iterable[Device]:
        return [device("gpu-0")]

    @functions.prepare
    async def prepare(claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        log.append(f"prepare {claim.name}")
        return [found.prepared() for found in claim.devices]

    @functions.unprepare
    def unprepare(claim: AllocatedClaim) -> None:
        log.append(f"unprepare {claim.name}")

    async def run() -> None:
        async with driver_bench(functions.driver(), directory) as bench:
            name = bench.name_of(await bench.claim("c", exactly("gpu", bench.class_name)))
            (found,) = (await bench.caller.prepare([name]))[name.uid].devices
            assert (found.device, found.cdi_device_ids) == ("gpu-0", ()), "nothing for containers: no CDI name"
            assert bench.cdi_documents() == {}
            await bench.caller.unprepare([name])

    asyncio.run(run())
    assert log == ["prepare c", "unprepare c"]


def test_missing_functions_of_a_driver_are_named() -> None:
    functions = DriverFunctions("gpu.example.com")
    with pytest.raises(TypeError, match="has no function for devices and prepare"):
        functions.driver()
    functions.devices(list)
    with pytest.raises(TypeError, match="has two functions for devices"):
        functions.devices(list)
