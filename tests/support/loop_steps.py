"""Measures the longest step of the event loop in processor time: what other clients wait for, whatever else the machine does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class LongestStep:
    seconds: float = 0.0


@contextmanager
def longest_step() -> Iterator[LongestStep]:
    """Measures the steps of the loop of this thread inside the block. Only for asyncio's own loop, whose handles are Python."""
    longest, run, thread = LongestStep(), asyncio.Handle._run, threading.get_ident()

    def measured(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run(handle)
        if threading.get_ident() == thread:
            longest.seconds = max(longest.seconds, time.thread_time() - started)

    asyncio.Handle._run = measured  # type: ignore[method-assign,assignment]
    try:
        yield longest
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
