"""Processes of a simulation: paused and killed."""

from __future__ import annotations

import asyncio

from dralloc.simulator.processes import SimulatedProcess
from dralloc.simulator.virtual_time import run_virtual


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
