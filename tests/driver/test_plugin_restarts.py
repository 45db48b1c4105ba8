"""What a driver has prepared survives restarts, updates, damage and an API server that is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from dralloc.client.async_client import AsyncClient
from dralloc.driver import Device, device
from dralloc.driver.checkpoint import Checkpoint
from dralloc.driver.instances import AlreadyRunning
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.node.kubelet.checkpoint_file import checksum
from dralloc.testing.driver_bench import DriverBench, bench_on, bench_server, bench_settings
from tests.driver.memory_driver import (
    MemoryDriver,
    Offline,
    on_bench,
    shared_claim,
)


def test_a_restarted_driver_gives_the_same_answers(directory: Path) -> None:
    async def run() -> None:
        settings = bench_settings(directory)
        async with bench_server() as transport:
            async with bench_on(transport, MemoryDriver(), settings) as bench:
                name = bench.name_of(await shared_claim(bench, "c"))
                before = await bench.caller.prepare([name])
            # The CDI directory may be emptied separately.
            for path in settings.cdi_dir.iterdir():
                path.unlink()
            driver = MemoryDriver()
            async with bench_on(transport, driver, settings) as bench:
                assert await bench.caller.prepare([name]) == before
                assert len(bench.cdi_documents()) == 1
                assert driver.log == []
                await bench.caller.unprepare([name])
                assert driver.log == ["unprepare c ['gpu-0']"]

    asyncio.run(run())


def test_an_interrupted_preparation_is_repeated_or_undone(directory: Path) -> None:
    async def run() -> None:
        settings = bench_settings(directory)
        async with bench_server() as transport:
            async with bench_on(transport, MemoryDriver(), settings) as bench:
                again, undone = [bench.name_of(await shared_claim(bench, name)) for name in ("again", "undone")]
                await bench.caller.prepare([again, undone])
            checkpoint = Checkpoint(settings.data_dir("gpu.example.com") / "claims")
            for record in checkpoint.all():
                checkpoint.write(replace(record, is_prepared=False, devices=()))
            driver = MemoryDriver()
            async with bench_on(transport, driver, settings) as bench:
                assert (await bench.caller.prepare([again]))[again.uid].error == ""
                assert (await bench.caller.unprepare([undone]))[undone.uid].error == ""
            assert driver.log == ["prepare again", "unprepare undone ['gpu-0']"]

    asyncio.run(run())


def test_two_instances_share_the_work(directory: Path) -> None:
    async def run() -> None:
        async with bench_server() as transport, AsyncExitStack() as stack:
            old, new = MemoryDriver(), MemoryDriver()
            first = await stack.enter_async_context(
                bench_on(transport, old, bench_settings(directory, pod_uid="uid-1"))
            )
            name = first.name_of(await shared_claim(first, "c"))
            answers = await first.caller.prepare([name])
            second = bench_on(transport, new, bench_settings(directory, pod_uid="uid-2"))
            async with second as bench:
                sockets = sorted(path.name for path in (directory / "registry").iterdir())
                assert sockets == ["gpu.example.com-uid-1-reg.sock", "gpu.example.com-uid-2-reg.sock"]
                assert await bench.caller.prepare([name]) == answers
                assert await first.caller.prepare([name]) == answers
                assert (await bench.caller.unprepare([name]))[name.uid].error == ""
                assert (await first.caller.unprepare([name]))[name.uid].error == ""
            assert (old.log, new.log) == (["prepare c"], ["unprepare c ['gpu-0']"])
            assert [path.name for path in (directory / "registry").iterdir()] == ["gpu.example.com-uid-1-reg.sock"]

    asyncio.run(run())


def test_only_the_newest_instance_publishes(directory: Path) -> None:
    class Changing(MemoryDriver):
        def __init__(self, *names: str) -> None:
            super().__init__()
            self.names = names

        def devices(self) -> Iterable[Device]:
            return [device(name) for name in self.names]

    async def published(client: AsyncClient) -> list[str]:
        return [found.name for item in await client.list(ResourceSlice) for found in item.spec.devices or ()]

    async def run() -> None:
        async with bench_server() as transport, AsyncExitStack() as stack:
            old = await stack.enter_async_context(
                bench_on(transport, Changing("old"), bench_settings(directory, pod_uid="1"))
            )
            async with bench_on(transport, Changing("new"), bench_settings(directory, pod_uid="2")) as new:
                assert await published(new.client) == ["new"]
                await old.plugin.republish()
                await new.plugin.republish()
                await new.plugin.published()
                assert await published(new.client) == ["new"]
            await old.plugin.republish()
            await old.plugin.published()
            assert await published(old.client) == ["old"], "an update that was taken back"

    asyncio.run(run())


def test_an_instance_that_would_take_the_sockets_of_another_does_not_start(directory: Path) -> None:
    async def run() -> None:
        settings = bench_settings(directory)
        async with bench_server() as transport, bench_on(transport, MemoryDriver(), settings) as bench:
            with pytest.raises(AlreadyRunning, match="another instance serves"):
                async with bench_on(transport, MemoryDriver(), settings):
                    raise AssertionError("two at once")
            name = bench.name_of(await shared_claim(bench, "c"))
            assert (await bench.caller.prepare([name]))[name.uid].error == "", "the first one is not harmed"

    asyncio.run(run())


def test_prepared_claims_are_answered_without_an_api_server(directory: Path) -> None:
    async def run() -> None:
        async with bench_server() as transport:
            line = Offline(transport)
            async with bench_on(line, MemoryDriver(), bench_settings(directory)) as bench:
                known, new = [bench.name_of(await shared_claim(bench, name)) for name in ("known", "new")]
                before = await bench.caller.prepare([known])
                line.is_down = True
                answers = await bench.caller.prepare([known, new])
                assert answers[known.uid] == before[known.uid]
                assert answers[new.uid].error == "claim default/new: the server is away"
                assert (await bench.caller.unprepare([known]))[known.uid].error == ""

    asyncio.run(run())


def test_a_damaged_checkpoint_file_affects_one_claim(directory: Path) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        names = [bench.name_of(await shared_claim(bench, name)) for name in ("a", "b")]
        await bench.caller.prepare(names)
        damaged = bench.settings.data_dir(driver.name) / "claims" / f"{names[0].uid}.json"
        damaged.write_bytes(b"{}")
        for answers in (await bench.caller.prepare(names), await bench.caller.unprepare(names)):
            assert str(damaged) in answers[names[0].uid].error
            assert answers[names[1].uid].error == ""

    on_bench(directory, scenario)


def test_a_file_of_an_earlier_version_with_a_number_in_env_says_how_to_release_the_claim(directory: Path) -> None:
    async def scenario(bench: DriverBench, driver: MemoryDriver) -> None:
        name = bench.name_of(await shared_claim(bench, "a"))
        await bench.caller.prepare([name])
        path = bench.settings.data_dir(driver.name) / "claims" / f"{name.uid}.json"
        text = json.dumps(json.loads(path.read_bytes())["record"]).replace('"gpu-0", "MEMORY"', '5, "MEMORY"').encode()
        path.write_bytes(b'{"version":1,"checksum":%d,"record":%s}' % (checksum(text), text))
        error = (await bench.caller.unprepare([name]))[name.uid].error
        assert error.startswith(f"{path}: not a record of a claim: Expected `str`, got `int`")
        assert error.endswith("undo what the driver prepared for it, then remove the file")
        path.unlink()
        assert (await bench.caller.unprepare([name]))[name.uid].error == ""

    on_bench(directory, scenario)
