"""The network of a simulation: messages between processes are lost, slow, late or doubled, and links are cut.

After a lost answer the server has done the work and the client does not know. A late request reaches the server after its client
has given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from dralloc.testing.virtual_time import PROCESS, SimulatedProcess

Result = TypeVar("Result")

LATENCY_MAX_S: Final = 0.004
# A client on a cut link notices after this time.
CONNECT_TIMEOUT_S: Final = 3.0


class NoAnswer(Exception):
    """No answer: whether the server did the work is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The probability of each fault of a message."""

    lose_request: float = 0.0
    lose_answer: float = 0.0
    late: float = 0.0
    duplicate: float = 0.0
    slow: float = 0.0
    break_stream: float = 0.0
    # Upper bound for slow and late messages.
    delay_max_s: float = 20.0


class Network:
    """Links between named processes; one seed decides about every message."""

    def __init__(self, random: Random, faults: Faults) -> None:
        self._random = random
        self.faults = faults
        # Links with faults of their own, in place of `faults`.
        self._faulty: dict[frozenset[str], Faults] = {}
        self._cut: dict[frozenset[str], int] = {}
        self._in_flight: set[asyncio.Task[Any]] = set()

    async def call(
        self, source: str, target: SimulatedProcess, work: Callable[[], Coroutine[Any, Any, Result]], faults: Faults
    ) -> Result:
        """The result of work that a message from the source starts in the target; raises NoAnswer."""
        draw, client = self._random.random, PROCESS.get()
        if client is not None and client.dead:
            raise NoAnswer("a dead process sends nothing")
        await self._cross(source, target.name)
        if draw() < faults.lose_request:
            raise NoAnswer("the request was lost")
        if draw() < faults.late:
            self._later(target, work, faults)
            raise NoAnswer("no answer in time")
        if draw() < faults.slow:
            await asyncio.sleep(draw() * faults.delay_max_s)
        if target.dead:
            raise NoAnswer(f"{target.name} refuses the connection")
        if draw() < faults.duplicate:
            # At once, as a library that repeats a request on a new connection does.
            self._track(target.start(work()))
        task = target.start(work())
        try:
            await _end_of(task)
        except asyncio.CancelledError:
            # The client has gone; the server may still finish.
            self._track(task)
            raise
        if task.cancelled():
            raise NoAnswer(f"{target.name} was killed")
        result = task.result()
        if draw() < faults.lose_answer:
            raise NoAnswer("the answer was lost")
        await self._cross(target.name, source)
        return result

    async def pass_piece(self, source: str, target: str, faults: Faults) -> None:
        """A piece of a stream passes, in order; raises NoAnswer if the stream breaks."""
        if self._random.random() < faults.break_stream:
            raise NoAnswer("the stream broke")
        if self._random.random() < faults.slow:
            await asyncio.sleep(self._random.random() * faults.delay_max_s)
        if self.is_cut(source, target):
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise NoAnswer("the link is cut")

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def disturb(self, one: str, other: str, faults: Faults) -> None:
        """Give a link faults of its own."""
        self._faulty[frozenset((one, other))] = faults

    def faults_between(self, one: str, other: str) -> Faults:
        return self._faulty.get(frozenset((one, other)), self.faults)

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self._cut) and frozenset((source, target)) in self._cut

    def cut(self, one: str, other: str, seconds: float) -> None:
        """Cut a link in both directions for some time."""
        link = frozenset((one, other))
        self._cut[link] = self._cut.get(link, 0) + 1
        asyncio.get_running_loop().call_later(seconds, self._mend, link)

    async def heal(self) -> None:
        """End all faults, and wait for messages in flight."""
        self.faults = Faults()
        self._faulty.clear()
        self._cut.clear()
        await self.all_arrived()

    async def all_arrived(self) -> None:
        while self._in_flight:
            await asyncio.wait(list(self._in_flight))

    async def _cross(self, source: str, target: str) -> None:
        if self._random.random() < 0.5:
            await asyncio.sleep(self._random.random() * LATENCY_MAX_S)
        if self.is_cut(source, target):
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise NoAnswer(f"the link between {source} and {target} is cut")

    def _mend(self, link: frozenset[str]) -> None:
        left = self._cut.get(link, 0) - 1
        if left > 0:
            self._cut[link] = left
        else:
            self._cut.pop(link, None)

    def _later(self, target: SimulatedProcess, work: Callable[[], Coroutine[Any, Any, Any]], faults: Faults) -> None:
        async def arrive() -> None:
            await asyncio.sleep(self._random.random() * faults.delay_max_s)
            if not target.dead:
                await asyncio.gather(target.start(work()), return_exceptions=True)

        # In no process: the message is on its way, whatever happens to its sender.
        self._track(asyncio.get_running_loop().create_task(arrive(), context=Context()))

    def _track(self, task: asyncio.Task[Any]) -> None:
        self._in_flight.add(task)
        # In no process, too: the sender may be paused when the message arrives.
        task.add_done_callback(self._arrived, context=Context())

    def _arrived(self, task: asyncio.Task[Any]) -> None:
        self._in_flight.discard(task)
        # No task waits for this answer, nor for its error.
        if not task.cancelled():
            task.exception()


async def _end_of(task: asyncio.Task[Any]) -> None:
    """Wait for a task and not for its result; cheaper than `asyncio.wait`, and all requests do it."""
    ended = asyncio.get_running_loop().create_future()

    def end(_: asyncio.Task[Any]) -> None:
        if not ended.done():
            ended.set_result(None)

    task.add_done_callback(end)
    try:
        await ended
    finally:
        task.remove_done_callback(end)
