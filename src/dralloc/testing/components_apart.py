"""Scheduler and controllers in processes of their own, beside the server: a process uses one core at a time."""

from __future__ import annotations

import asyncio
import os
import pickle
import secrets
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.controllers.controller_set import ControllerSet
from dralloc.primitives.metrics import Metric
from dralloc.scheduler.leader_loop import SchedulerLoop
from dralloc.scheduler.report.stranded_devices import IdleDevices
from dralloc.server.access.users import User
from dralloc.server.http.application import ApiApplication
from dralloc.server.server_process import RunningServer
from dralloc.testing.cluster import ClusterSettings, ReadIdleDevices
from dralloc.testing.component_rights import ComponentAccount
from dralloc.testing.components import Components, starting_again
from dralloc.testing.gc_settings import collect_rarely


def has_several_cores() -> bool:
    """True if several processes can run at the same time."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


class ComponentState(NamedTuple):
    """What the parent of a component shows of it."""

    metrics: tuple[Metric, ...]
    idle: Mapping[str, IdleDevices] = {}


def _new_tokens() -> dict[ComponentAccount, str]:
    return {
        account: secrets.token_urlsafe(32) for account in (ComponentAccount.SCHEDULER, ComponentAccount.CONTROLLERS)
    }


@dataclass(frozen=True, slots=True)
class ComponentsApart:
    """The processes, and the tokens by which the server knows them."""

    _scheduler: ChildProcess[ComponentState]
    _controllers: ChildProcess[ComponentState]
    _tokens: Mapping[ComponentAccount, str] = field(default_factory=_new_tokens)

    def users(self) -> dict[str, User]:
        """The users of the components, by token."""
        return {token: account.user for account, token in self._tokens.items()}

    def start(self, running: RunningServer, components: Components, application: ApiApplication) -> ReadIdleDevices:
        """Have them work on the server."""
        for name, account, child in (
            ("scheduler", ComponentAccount.SCHEDULER, self._scheduler),
            ("controllers", ComponentAccount.CONTROLLERS, self._controllers),
        ):
            connection = _connection(running.local_url, self._tokens[account], running.authority)
            components.start(name, partial(child.run, connection))
            application.metrics.include_later(partial(_metrics_of, child))
        return partial(_idle_devices_of, self._scheduler)


def _connection(server: str, token: str, authority: Path | None) -> ConnectionConfig:
    if authority is None:
        return ConnectionConfig(server=server, token=token)
    return ConnectionConfig(server=server, token=token, authority_pem=authority.read_text())


async def _metrics_of(child: ChildProcess[ComponentState]) -> Iterable[Metric]:
    state = await child.state()
    return () if state is None else state.metrics


async def _idle_devices_of(child: ChildProcess[ComponentState]) -> Mapping[str, IdleDevices]:
    state = await child.state()
    return {} if state is None else state.idle


def fork_components(settings: ClusterSettings) -> ComponentsApart:
    """Call it before the process has an event loop or threads."""
    return ComponentsApart(
        ChildProcess(lambda connection: _ForkedScheduler(connection, settings)),
        ChildProcess(lambda connection: _ForkedControllers(connection, settings)),
    )


class _ForkedScheduler:
    def __init__(self, connection: ConnectionConfig, settings: ClusterSettings) -> None:
        self._loop = SchedulerLoop(HttpTransport(connection), clock=settings.clock, settings=settings.scheduler)
        self._identity = settings.identity

    async def run(self) -> None:
        loop, identity = self._loop, self._identity
        await starting_again("scheduler", partial(loop.run_elected, identity) if identity else loop.run)

    async def close(self) -> None:
        await self._loop.close()

    def state(self) -> ComponentState:
        return ComponentState(tuple(self._loop.metrics.all()), self._loop.metrics.idle())


class _ForkedControllers:
    def __init__(self, connection: ConnectionConfig, settings: ClusterSettings) -> None:
        transport = HttpTransport(connection)
        self._set = ControllerSet(transport, clock=settings.clock, gates=settings.gates, only=settings.controllers)
        self._identity = settings.identity

    async def run(self) -> None:
        controllers, identity = self._set, self._identity
        await starting_again("controllers", partial(controllers.run_elected, identity) if identity else controllers.run)

    async def close(self) -> None:
        await self._set.close()

    def state(self) -> ComponentState:
        return ComponentState(tuple(self._set.metrics.all()))


# --- Child process --------------------------------------------------------------------------------------------------
# A component in a process of its own: forked before this process has an event loop or threads, so that it has
# everything imported.
#
# It works from when it is told its server until the other end of its socket closes: because it is told to end, or
# because its parent died, however that was. In between it answers what it is asked about itself, for metrics and
# for the web page.


# A process that does not end within this time is killed.
STOP_S: Final = 15.0
# A process that does not answer within this time is busy with something else.
ANSWERS_WITHIN_S: Final = 2.0
_LENGTH_BYTES: Final = 4
_QUESTION: Final = b"?"

State = TypeVar("State")
StateOut = TypeVar("StateOut", covariant=True)


class ForkedComponent(Protocol[StateOut]):
    """What runs in the process. The state is pickled for its parent."""

    def state(self) -> StateOut: ...

    async def run(self) -> None: ...

    async def close(self) -> None: ...


class ChildEnded(Exception):
    """The process ended by itself."""


class ChildProcess(Generic[State]):
    """Forks at once. `run` has it work; without that, it ends when this process does."""

    def __init__(self, start: Callable[[ConnectionConfig], ForkedComponent[State]]) -> None:
        self._asked: deque[asyncio.Future[State]] = deque()
        self._writer: asyncio.StreamWriter | None = None
        self._socket, theirs = socket.socketpair()
        # What is buffered would be printed twice.
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            _live(theirs, start)
        theirs.close()

    async def run(self, connection: ConnectionConfig) -> None:
        """Have it work on this server until cancelled. Raises ChildEnded if it ends before."""
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        try:
            self._writer.write(_frame(pickle.dumps(connection)))
            while True:
                answer: State = pickle.loads(await _read(reader))
                asked = self._asked.popleft()
                if not asked.done():
                    asked.set_result(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ChildEnded(f"its process {self._pid} ended") from None
        finally:
            # Processes that were forked later have the socket, too, so that to close it here is not enough.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._writer.close()
            self._writer = None
            while self._asked:
                self._asked.popleft().cancel()
            await self._reap()

    async def state(self) -> State | None:
        """The component's state now; `None` if it has none yet, or is too busy to tell it."""
        if self._writer is None:
            return None
        asked: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self._writer.write(_frame(_QUESTION))
        await asyncio.wait((asked,), timeout=ANSWERS_WITHIN_S)
        if asked.done() and not asked.cancelled():
            return asked.result()
        asked.cancel()
        return None

    async def _reap(self) -> None:
        ending = asyncio.create_task(asyncio.to_thread(os.waitpid, self._pid, 0))
        await asyncio.wait((ending,), timeout=STOP_S)
        if not ending.done():
            os.kill(self._pid, signal.SIGKILL)
        await ending


def _frame(content: bytes) -> bytes:
    return len(content).to_bytes(_LENGTH_BYTES) + content


async def _read(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH_BYTES)))


# --- The child ----------------------------------------------------------------------------------------------------


def _live(parent: socket.socket, start: Callable[[ConnectionConfig], ForkedComponent[Any]]) -> NoReturn:
    """The whole life of the process. It never returns: what the parent has to clean up is not ours."""
    # Terminals and supervisors signal all processes of a group; the parent decides when we end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    status = 1
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_work(parent, start))
        status = 0
    except BaseException:  # noqa: BLE001  # no other process reports it
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)


async def _work(parent: socket.socket, start: Callable[[ConnectionConfig], ForkedComponent[Any]]) -> None:
    reader, writer = await asyncio.open_connection(sock=parent)
    try:
        component = start(pickle.loads(await _read(reader)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    collect_rarely()
    running = asyncio.create_task(component.run())
    answering = asyncio.create_task(_answer(reader, writer, component))
    try:
        await asyncio.wait((running, answering), return_when=asyncio.FIRST_COMPLETED)
    finally:
        answering.cancel()
        running.cancel()
        outcomes = await asyncio.gather(running, answering, return_exceptions=True)
        await component.close()
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, component: ForkedComponent[Any]) -> None:
    """Answer questions until the parent closes its end."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            await _read(reader)
            writer.write(_frame(pickle.dumps(component.state())))
            await writer.drain()
