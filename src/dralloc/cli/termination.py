"""Work that ends in order when the command is told to end, by `kill`, `timeout` or a build that is cancelled, as it does on Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from dralloc.cli.output import TERMINATED

Answer = TypeVar("Answer")


def run_until_terminated(
    work: Coroutine[Any, Any, Answer], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> Answer:
    """What the work answers. On SIGTERM it is cancelled, so that nothing which it started stays behind, and the command ends."""
    is_told = False

    async def run_until_signal() -> Answer:
        working = asyncio.ensure_future(work)

        def end() -> None:
            nonlocal is_told
            is_told = True
            working.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
        return await working

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(run_until_signal())
    except asyncio.CancelledError:
        if is_told:
            sys.exit(TERMINATED)
        raise


@contextlib.contextmanager
def exit_when_terminated() -> Iterator[None]:
    """For work without an event loop: SIGTERM raises SystemExit in it, so that it removes what is unfinished."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
