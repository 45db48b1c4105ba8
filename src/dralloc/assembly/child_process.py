"""A component in a process of its own: forked before this process has an event loop or threads, so that it has everything imported.

It works from when it is told its server until the other end of its socket closes: because it is told to end, or because its parent
died, however that was. In between it answers what it is asked about itself, for metrics and for the web page.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

from dralloc.assembly.gc_settings import collect_rarely
from dralloc.client.kubeconfig import ConnectionConfig

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
