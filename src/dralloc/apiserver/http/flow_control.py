"""Flow control: requests share the event loop and the worker threads fairly, as API Priority and Fairness does in Kubernetes.

Each request belongs to a flow: its priority level, its user, its connection. While the loop is idle, requests start at once. When those of
one turn of the loop have used `TURN_S`, others wait in a fair queue for the next turn, so that a flood delays only itself. A request that waits
too long, or behind too many of its user's, gets 429 with Retry-After. Long computations run in threads, one at a time for each user.

The flow of a request is a context variable, so that code far below can give way to other requests (`give_way`) or leave the loop
(`compute`). Tasks of the server have a flow of their own. Requests of clients in this process have none: they run where they are called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf
from time import perf_counter
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from dralloc.access.users import User
from dralloc.apiserver.http.compute_threads import ComputeThreads
from dralloc.apiserver.http.fair_queue import FairQueue
from dralloc.apiserver.http.paced_log import PacedLog
from dralloc.apiserver.http.priority_levels import SHARES, PriorityLevel
from dralloc.primitives.errors import ApiError, ErrorDetails, TooManyRequests
from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, Metric

# The time that requests may use in one turn of the loop before others get one.
TURN_S: Final = 0.004
# The longest step of a long loop.
STEP_S: Final = 0.004
# The least that a request takes.
COST_MIN_S: Final = 0.0002
# As long as Kubernetes lets a request wait.
WAIT_MAX_S: Final = 15.0
# Requests of one user that may wait.
WAITING_MAX: Final = 1024
# Bodies and objects of this size take up to about 10 ms; larger ones leave the loop.
SIZE_INLINE_MAX: Final = 48 * 1024
# Computations of one user that may wait for a thread.
COMPUTATIONS_MAX: Final = 32
# Time that a request may have used before its flow is charged.
CHARGED_S: Final = 0.001
# A request that holds the loop for so long is counted.
HELD_S: Final = 0.010
# A request that holds the loop for so long is logged: it delays every client.
HELD_TOO_LONG_S: Final = 0.5
# The user of what the server does by itself.
SERVER: Final = User(name="system:apiserver")

P = ParamSpec("P")
T = TypeVar("T")

_logger = logging.getLogger(__name__)


# --- one request --------------------------------------------------------------------------------------------


class ClientGone(ApiError):
    """The client of a request disconnected, so no response is needed."""


class FlowConnection(Protocol):
    """The client's connection; work for a client that is gone stops when it gives way."""

    is_gone: bool


# Not frozen: to set fields takes three times as long then, and every request has a flow.
@dataclass(slots=True, eq=False)
class RequestFlow:
    """The flow of one request. It does not change."""

    control: FlowControl
    level: PriorityLevel
    user: str
    path: tuple[Any, ...]
    # For the log.
    request: str = ""
    connection: FlowConnection | None = None

    def metered(self, work: Awaitable[T]) -> _Metered[T]:
        """Awaits the work, and charges the time that it holds the loop to the flow."""
        return _Metered(self, work)

    async def enter(self) -> None:
        """Wait for a turn to start in; raises `TooManyRequests`."""
        if self.control.is_free or self.level is PriorityLevel.EXEMPT:
            return
        await self.control.wait_to_start(self)

    async def compute_patiently(self, work: Callable[[], T]) -> T:
        """The result of the work, done by a thread, however much waits."""
        return await self.control.threads.run(self.user, work)

    async def next_turn(self) -> None:
        """Wait for another turn, if this one is used up. Not for use inside metered work, whose last step is not charged yet."""
        if not self.control.is_free:
            await self.control.wait(self)


_current: ContextVar[RequestFlow | None] = ContextVar("_current", default=None)


def begin(flow: RequestFlow) -> None:
    """Make the flow that of the running task."""
    _current.set(flow)


def current_flow() -> RequestFlow | None:
    """The flow of the running task."""
    return _current.get()


def leave_request() -> None:
    """Make the running task one of the server: it goes on when the client whose request started it is gone."""
    flow = _current.get()
    if flow is not None:
        _current.set(flow.control.of_server)


async def give_way() -> None:
    """Let other requests run. Call it between steps of a few milliseconds."""
    flow = _current.get()
    if flow is not None:
        await flow.control.wait(flow)
    else:
        await asyncio.sleep(0)


async def next_turn() -> None:
    """Wait for a turn for a part of the current request that runs in a task of its own; raises `ClientGone`."""
    flow = _current.get()
    if flow is not None:
        await flow.next_turn()


def metered(work: Awaitable[T]) -> Awaitable[T]:
    """The work, whose time is charged to the flow of the running task."""
    flow = _current.get()
    return work if flow is None else flow.metered(work)


class Pace:
    """Measures a step of a long loop. Never over for clients in this process, whose runs must be repeatable."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = inf if _current.get() is None else perf_counter() + STEP_S

    def is_over(self) -> bool:
        """True if it is time to give way."""
        return perf_counter() > self._end


async def compute(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a pure function, in a thread if what it works on is large."""
    flow = _current.get() if size > SIZE_INLINE_MAX else None
    if flow is None:
        return work(*args, **kwargs)
    return await flow.control.compute(flow, lambda: work(*args, **kwargs))


async def compute_patiently(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `compute`, but never refused: for the response to a write that is done, or a response that has begun."""
    flow = _current.get() if size > SIZE_INLINE_MAX else None
    if flow is None:
        return work(*args, **kwargs)
    return await flow.compute_patiently(lambda: work(*args, **kwargs))


class _Metered(Awaitable[T]):
    __slots__ = ("_flow", "_work")

    def __init__(self, flow: RequestFlow, work: Awaitable[T]) -> None:
        self._flow = flow
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        control, flow = self._flow.control, self._flow
        # Short steps are charged together, at the end.
        owed_s = 0.0
        failure: BaseException | None = None
        sent = None
        try:
            while True:
                started = perf_counter()
                try:
                    awaited = steps.send(sent) if failure is None else steps.throw(failure)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                finally:
                    step_s = perf_counter() - started
                    control.use(flow, step_s)
                    owed_s += step_s
                if owed_s > CHARGED_S:
                    control.charge(flow, owed_s)
                    owed_s = 0.0
                sent, failure = None, None
                try:
                    sent = yield awaited
                except BaseException as error:  # noqa: BLE001  # passed on to the work
                    failure = error
        finally:
            control.charge(flow, owed_s)
            # The traceback of an error has this frame. Together they would keep the megabytes of a request until garbage is collected.
            awaited = sent = failure = None


# --- all requests -------------------------------------------------------------------------------------------


class FlowControl:
    """Gives out turns of one event loop, and threads."""

    def __init__(self) -> None:
        # What waits; the result is false if it has waited too long.
        self._queue: FairQueue[asyncio.Future[bool]] = FairQueue(SHARES)
        # By user.
        self._waiting: dict[str, int] = {}
        # The times until which turns are waited for, a heap: a timer for each would cost more than the wait. A number makes them unique.
        self._ends: list[tuple[float, int, asyncio.Future[bool]]] = []
        self._numbers = count()
        self._used_s = 0.0
        self._turn_ends = False
        # Woken, but not running yet.
        self._starting = 0
        self._is_contended = False
        # What a request of a user took lately, at most.
        self._costs_s: dict[str, float] = {}
        self.threads = ComputeThreads()
        # Of the server's own tasks: they take turns with requests, and leave the loop for long computations.
        self.of_server = self.flow_of(SERVER, PriorityLevel.WORKLOAD_HIGH, None, "a task of the server")
        self._log = PacedLog("shed requests")
        self.rejected = CounterMetric(
            "apiserver_flowcontrol_rejected_requests_total",
            "Requests that were answered with 429, by priority level and reason.",
            ("priority_level", "reason"),
        )
        self.held = HistogramMetric(
            "dralloc_apiserver_loop_held_seconds", "Steps of requests that held the event loop for more than 10 ms.", ()
        )
        self._inqueue = GaugeMetric(
            "apiserver_flowcontrol_current_inqueue_requests",
            "Requests that wait for their turn.",
            read=lambda: [((), len(self._queue))],
        )

    def metrics(self) -> tuple[Metric, ...]:
        return (self.rejected, self.held, self._inqueue)

    def flow_of(
        self,
        user: User,
        level: PriorityLevel,
        client: Hashable,
        request: str = "",
        connection: FlowConnection | None = None,
    ) -> RequestFlow:
        return RequestFlow(self, level, user.name, (level, user.name, client), request, connection)

    @contextmanager
    def starting_server(self) -> Iterator[None]:
        """Tasks that are started inside the block are the server's own."""
        before = _current.set(self.of_server)
        try:
            yield
        finally:
            _current.reset(before)

    @property
    def is_free(self) -> bool:
        """True if a request may run in this turn."""
        return self._used_s < TURN_S and not self._queue and not self._starting

    def charge(self, flow: RequestFlow, seconds: float) -> None:
        """Count time that the flow has used before others that wait."""
        if self._is_contended and seconds:
            self._queue.charge(flow.path, seconds)
            # Rather too much than too little: who is woken in vain has to wait again.
            known_s = self._costs_s.get(flow.user, 0.0)
            self._costs_s[flow.user] = max(seconds, (7 * known_s + seconds) / 8)

    def use(self, flow: RequestFlow, seconds: float) -> None:
        """Count a step against the turn in which it was made."""
        self._used_s += seconds
        if not self._turn_ends:
            self._end_turn_soon()
        if seconds > HELD_S:
            self.held.observe(value=seconds)
        if seconds > HELD_TOO_LONG_S:
            _logger.warning("%s of %s held the event loop for %.2f s", flow.request, flow.user, seconds)

    async def wait_to_start(self, flow: RequestFlow) -> None:
        if self._waiting.get(flow.user, 0) >= WAITING_MAX:
            raise self.reject(flow, "queue-full")
        await self.wait(flow, at_most_s=WAIT_MAX_S)

    async def wait(self, flow: RequestFlow, *, at_most_s: float | None = None) -> None:
        loop = asyncio.get_running_loop()
        ends_s = None if at_most_s is None else loop.time() + at_most_s
        self._waiting[flow.user] = self._waiting.get(flow.user, 0) + 1
        try:
            while True:
                turn = loop.create_future()
                if ends_s is not None:
                    heappush(self._ends, (ends_s, next(self._numbers), turn))
                self._queue.push(flow.path, turn)
                self._is_contended = True
                self._end_turn_soon()
                try:
                    await turn
                finally:
                    if turn.done() and not turn.cancelled() and turn.result():
                        self._starting -= 1
                # It may also have been woken in vain again and again.
                if not turn.result() or (ends_s is not None and loop.time() > ends_s):
                    raise self.reject(flow, "time-out")
                if flow.connection is not None and flow.connection.is_gone:
                    raise ClientGone("the client disconnected")
                if self._used_s < TURN_S:
                    return
        finally:
            if self._waiting[flow.user] == 1:
                del self._waiting[flow.user]
            else:
                self._waiting[flow.user] -= 1

    async def compute(self, flow: RequestFlow, work: Callable[[], T]) -> T:
        """The result of the work, done by a thread."""
        # A task of the server could not pass the refusal on.
        if flow is not self.of_server and self.threads.waiting_of(flow.user) >= COMPUTATIONS_MAX:
            raise self.reject(flow, "concurrency-limit")
        return await self.threads.run(flow.user, work)

    def close(self) -> None:
        self.threads.close()

    def _next_turn(self) -> None:
        """Wake what waits, in fair order, as much as may fit into a turn. Those that find it used up wait again."""
        self._used_s = 0.0
        self._turn_ends = False
        room_s = TURN_S
        while self._queue and room_s > 0:
            (_, user, _), turn = self._queue.pop()
            if not turn.done():
                turn.set_result(True)
                self._starting += 1
                room_s -= max(self._costs_s.get(str(user), 0.0), COST_MIN_S)
        self._end_waits()
        if self._queue or self._starting:
            self._end_turn_soon()
        elif self._is_contended:
            self._is_contended = False
            self._queue.forget()
            self._costs_s.clear()

    def _end_waits(self) -> None:
        """Wake what has waited too long, and forget what waits no more. There is a next turn as long as anything waits."""
        now_s = asyncio.get_running_loop().time()
        while self._ends and (self._ends[0][2].done() or self._ends[0][0] <= now_s):
            _, _, turn = heappop(self._ends)
            if not turn.done():
                turn.set_result(False)

    def _end_turn_soon(self) -> None:
        if not self._turn_ends:
            self._turn_ends = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def reject(self, flow: RequestFlow, reason: str) -> TooManyRequests:
        """The error for a request that is shed; it is counted and logged."""
        self.rejected.add(flow.level.value, reason)
        self._log.count(f"{flow.user} ({flow.level.value})")
        return TooManyRequests("too many requests, please try again later", details=ErrorDetails(retry_after_s=1))
