"""Child processes: waiting for the end of one without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Final

POLL_INTERVAL_S: Final = 0.2


async def exit_code(child: subprocess.Popen[bytes]) -> int:
    """The exit code of the child, or the negative number of the signal that killed it."""
    if not hasattr(os, "pidfd_open"):
        while child.poll() is None:
            await asyncio.sleep(POLL_INTERVAL_S)
        return child.wait()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.pidfd_open(child.pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return child.wait()
