"""Threads for long computations, shared fairly by users: the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Final, TypeVar

from dralloc.apiserver.http.fair_queue import FairQueue

THREADS: Final = 2
# Other threads get the interpreter after this time; Python's default is 5 ms, and an answer needs it several times.
SWITCH_INTERVAL_S: Final = 0.0005

T = TypeVar("T")


class ComputeThreads:
    """Threads for long computations; each user has one at a time, and users take turns."""

    def __init__(self) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._waiting: Counter[str] = Counter()
        self._running: set[str] = set()
        self._executor: ThreadPoolExecutor | None = None

    def waiting_of(self, user: str) -> int:
        return self._waiting[user]

    async def run(self, user: str, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        self._waiting[user] += 1
        try:
            while user in self._running or len(self._running) >= THREADS:
                turn: asyncio.Future[None] = loop.create_future()
                self._queue.push((user,), turn)
                await turn
            self._running.add(user)
        finally:
            self._waiting[user] -= 1
            if not self._waiting[user]:
                del self._waiting[user]
        if self._executor is None:
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="dralloc-compute")
        started = perf_counter()
        try:
            return await loop.run_in_executor(self._executor, work)
        finally:
            self._running.discard(user)
            self._queue.charge((user,), perf_counter() - started)
            self._wake()
            if not self._running and not self._waiting:
                self._queue.forget()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _wake(self) -> None:
        """Let all that wait look again, in fair order."""
        for _ in range(len(self._queue)):
            _, turn = self._queue.pop()
            if not turn.done():
                turn.set_result(None)
