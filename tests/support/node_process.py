"""`dralloc node` as users run it: a process of its own, which a test may kill at any moment."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process

READY_TIMEOUT_S = 60


async def start_node_process(*options: str) -> Process:
    """Start a node and wait until it prints that it is ready. Later output is lost."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "dralloc", "node", *options, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            async for line in process.stdout:
                if b"ready" in line:
                    return process
    except TimeoutError:
        await kill(process)
        raise
    raise RuntimeError(f"the node ended with {await process.wait()} before it was ready")


async def kill(process: Process) -> None:
    """Kill the process, and read its pipes to the end so that they are closed."""
    if process.returncode is None:
        process.kill()
    await process.communicate()
