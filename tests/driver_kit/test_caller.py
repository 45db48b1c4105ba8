"""Calls of the kit end in time, even if the driver never answers."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from dralloc.driver_kit.caller import SILENT_TIMEOUT_S, UNANSWERED_MAX, ClaimName, Responsiveness, RpcFailed, calling
from dralloc.rpc.plugin_services import REGISTRATION, PluginService
from tests.support.node_cluster import short_directory
from tests.support.scripted_driver import ScriptedDriver


def test_a_silent_driver_gets_little_time_until_it_answers() -> None:
    responsiveness = Responsiveness()
    for _ in range(UNANSWERED_MAX):
        assert responsiveness.timeout_s(45.0) == 45.0
        responsiveness.record(answered=False)
    assert responsiveness.timeout_s(45.0) == SILENT_TIMEOUT_S
    assert responsiveness.timeout_s(1.0) == 1.0
    responsiveness.record(answered=True)
    assert responsiveness.timeout_s(45.0) == 45.0


def test_a_program_that_accepts_and_never_answers_is_told_from_none() -> None:
    async def said(path: Path) -> str:
        with pytest.raises(RpcFailed) as failed:
            async with calling(path, dial_s=0.2):
                pass
        return str(failed.value)

    with short_directory() as directory, socket.socket(socket.AF_UNIX) as program:
        path = directory / "s"
        missing = asyncio.run(said(path))
        program.bind(str(path))
        program.listen()
        silent = asyncio.run(said(path))
    assert "nothing listens at" in missing
    assert "a program listens at" in silent
    assert "does not answer as a gRPC server" in silent


def test_unanswered_calls_are_counted_over_connections() -> None:
    async def hangs(service: PluginService, request: Any, context: Any) -> Any:
        await asyncio.Event().wait()

    async def run(directory: Path) -> None:
        responsiveness = Responsiveness()
        async with ScriptedDriver(directory, on_prepare=hangs) as driver:
            for _ in range(UNANSWERED_MAX):
                async with calling(driver.socket, responsiveness=responsiveness) as caller:
                    with pytest.raises(RpcFailed, match=r"no answer to NodePrepareResources within 0\.2 s"):
                        await caller.prepare([ClaimName("default", "c", "u")], timeout_s=0.2)
            assert responsiveness.is_silent
            async with calling(driver.socket, responsiveness=responsiveness) as caller:
                await caller.unprepare([ClaimName("default", "c", "u")])
            assert not responsiveness.is_silent

    with short_directory() as directory:
        asyncio.run(run(directory))


def test_the_answer_to_get_info_has_a_limit() -> None:
    """It is printed, and used in objects of the API."""

    async def long_info() -> Any:
        return REGISTRATION.messages.PluginInfo(name="gpu.example.com" * 100_000)

    async def run(directory: Path) -> None:
        async with (
            ScriptedDriver(directory, on_get_info=long_info) as driver,
            calling(driver.registration_socket) as caller,
        ):
            with pytest.raises(RpcFailed, match=r"GetInfo answered 1,500,\d{3} bytes, and may answer at most 4,096"):
                await caller.get_info()

    with short_directory() as directory:
        asyncio.run(run(directory))
