"""A work queue of distinct keys: a key is never processed concurrently, and failures are retried with back-off.

Time is the event loop's, so under a simulated loop the queue runs in simulated time.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delay after the n-th consecutive failure of a key: doubled each time, up to a bound."""

    first_s: float = 0.005
    most_s: float = 1000.0

    def delay_s(self, failures: int) -> float:
        # The exponent is bounded so that a key which fails for days does not create huge integers.
        return min(self.first_s * 2.0 ** min(max(failures - 1, 0), 64), self.most_s)


class WorkQueue(Generic[Key]):
    """A queue of distinct keys.

    A key that is added while it is being processed is processed again afterwards, so the last state is always handled.
    """

    def __init__(self, backoff: Backoff = Backoff()) -> None:  # noqa: B008 - immutable
        self._backoff = backoff
        self._waiting: deque[Key] = deque()
        self._dirty: set[Key] = set()
        self._working: set[Key] = set()
        self._failures: dict[Key, int] = {}
        # When keys are added later, by the loop's clock. uvloop's handles of short delays do not say it.
        self._timers: dict[Key, tuple[float, asyncio.Handle]] = {}
        # Workers without a key. Each key wakes one: a semaphore would look at all that it has woken before.
        self._idle_workers: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key) -> None:
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._append(key)

    def add_after(self, key: Key, delay_s: float) -> None:
        """Adds the key later. The earliest of several requested times counts."""
        loop = asyncio.get_running_loop()
        at_s, timer = self._timers.get(key, (math.inf, None))
        if self._closed or at_s <= loop.time() + delay_s:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.time() + delay_s, loop.call_later(delay_s, self._fire, key)

    def retry(self, key: Key) -> float:
        """Adds the key again after its back-off; returns the delay in seconds."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = self._backoff.delay_s(self._failures[key])
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: Key) -> None:
        """Resets the back-off of a key after success."""
        self._failures.pop(key, None)

    async def get(self) -> Key | None:
        """Returns the next key, marked as being processed; `None` when the queue is closed."""
        while not self._waiting:
            if self._closed:
                return None
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_workers.append(woken)
            try:
                await woken
            except asyncio.CancelledError:
                if not woken.cancelled():
                    # Another worker takes the key.
                    self._wake_one()
                raise
        key = self._waiting.popleft()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: Key) -> None:
        self._working.discard(key)
        if key in self._dirty:
            self._append(key)

    def close(self) -> None:
        """Stops accepting keys; workers get the waiting keys and then `None`."""
        if self._closed:
            return
        self._closed = True
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._idle_workers:
            self._wake_one()

    @property
    def idle(self) -> bool:
        """True if no key waits, is being processed, or is scheduled for later."""
        return not (self._waiting or self._working or self._dirty or self._timers)

    def _append(self, key: Key) -> None:
        self._waiting.append(key)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._idle_workers:
            worker = self._idle_workers.popleft()
            if not worker.done():
                worker.set_result(None)
                return

    def _fire(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)


async def work(
    queue: WorkQueue[Key], handle: Callable[[Key], Awaitable[None]], on_error: Callable[[Key, Exception], None]
) -> None:
    """Passes each key to `handle` until the queue is closed; a key that fails is retried after its back-off."""
    while (key := await queue.get()) is not None:
        try:
            await handle(key)
        except Exception as error:  # noqa: BLE001 - whatever it was, the key must come back and the worker must live
            on_error(key, error)
            queue.retry(key)
        else:
            queue.forget(key)
        finally:
            queue.done(key)
