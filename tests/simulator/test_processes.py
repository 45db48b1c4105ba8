"""Processes of a simulation: paused and killed."""

from __future__ import annotations

import asyncio

from dralloc.testing.virtual_time import SimulatedProcess, run_virtual


def test_a_process_is_killed_while_the_one_that_called_it_is_paused() -> None:
    client, server = SimulatedProcess("client"), SimulatedProcess("server")

    async def call() -> None:
        await server.start(asyncio.sleep(60))

    async def run() -> None:
        async with asyncio.timeout(600):
            calling = client.start(call())
            await asyncio.sleep(1)
            client.pause()
            await server.kill()
            assert not calling.done()
            await client.kill()
            assert calling.cancelled()

    run_virtual(run())


def test_a_timer_of_a_killed_process_does_nothing() -> None:
    process = SimulatedProcess("agent")
    rung: list[str] = []

    async def set_timers() -> None:
        asyncio.get_running_loop().call_later(30, rung.append, "first")
        asyncio.get_running_loop().call_later(90, rung.append, "second")

    async def run() -> None:
        await process.start(set_timers())
        await asyncio.sleep(60)
        await process.kill()
        await asyncio.sleep(60)

    run_virtual(run())
    assert rung == ["first"]


def test_a_callback_that_another_one_cancels_after_a_pause_does_not_run() -> None:
    async def main() -> None:
        ran: list[str] = []
        process = SimulatedProcess("p")
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: ran.append(context["message"]))

        async def work() -> None:
            later = loop.call_later(2, ran.append, "cancelled")
            loop.call_later(1, later.cancel)
            loop.call_later(3, ran.append, "last")

        await process.start(work())
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await asyncio.sleep(0.1)
        assert ran == ["last"]

    run_virtual(main())
