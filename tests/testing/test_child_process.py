"""A component in a process of its own works while its parent does, tells its state, and is missed when it ends."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest

from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.testing.components_apart import ChildEnded, ChildProcess

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="waits for processes by pidfd"),
    # Those that run tests in parallel have threads; `dralloc up` has none when it forks.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

DEADLINE_S = 60

State = tuple[str, int]


class Component:
    """On the server `ending`, it ends when it has told its state; on `failing`, it cannot tell it."""

    def __init__(self, connection: ConnectionConfig) -> None:
        self.server = connection.server
        self.was_asked = asyncio.Event()

    def state(self) -> State:
        self.was_asked.set()
        if self.server == "failing":
            raise ValueError("no state")
        return self.server, os.getpid()

    async def run(self) -> None:
        await self.was_asked.wait()
        if self.server != "ending":
            await asyncio.Event().wait()

    async def close(self) -> None:
        pass


def has_ended(pid: int) -> bool:
    """True as soon as the process has ended, False after a long time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], DEADLINE_S)[0])
    finally:
        os.close(descriptor)


def with_child(server: str, test: Callable[[ChildProcess[State], asyncio.Task[None], State], Awaitable[None]]) -> None:
    child: ChildProcess[State] = ChildProcess(Component)

    async def main() -> int:
        running = asyncio.create_task(child.run(ConnectionConfig(server=server)))
        async with asyncio.timeout(DEADLINE_S):
            while (state := await child.state()) is None:
                await asyncio.sleep(0)
            await test(child, running, state)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert await child.state() is None
        return state[1]

    assert has_ended(asyncio.run(main()))


def test_it_tells_its_state_until_it_is_told_to_end() -> None:
    async def test(child: ChildProcess[State], _: asyncio.Task[None], first: State) -> None:
        assert first[0] == "here"
        assert first[1] != os.getpid()
        assert tuple(await asyncio.gather(child.state(), child.state())) == (first, first)

    with_child("here", test)


def test_signals_for_the_whole_group_are_left_to_the_parent() -> None:
    async def test(child: ChildProcess[State], _: asyncio.Task[None], first: State) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(first[1], number)
        assert await child.state() == first

    with_child("here", test)


def test_its_end_is_an_error() -> None:
    async def killed(_: ChildProcess[State], running: asyncio.Task[None], first: State) -> None:
        os.kill(first[1], signal.SIGKILL)
        with pytest.raises(ChildEnded):
            await running

    async def ended(_: ChildProcess[State], running: asyncio.Task[None], __: State) -> None:
        with pytest.raises(ChildEnded):
            await running

    with_child("here", killed)
    with_child("ending", ended)


def test_an_error_of_its_state_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    child: ChildProcess[State] = ChildProcess(Component)

    async def main() -> None:
        running = asyncio.create_task(child.run(ConnectionConfig(server="failing")))
        async with asyncio.timeout(DEADLINE_S):
            while not running.done():
                assert await child.state() is None
                await asyncio.sleep(0)
        with pytest.raises(ChildEnded):
            await running

    asyncio.run(main())
    assert "ValueError: no state" in capfd.readouterr().err


def test_it_is_told_to_end_while_others_live() -> None:
    """Those that were forked after it have inherited the socket by which it is told."""
    told, tell = os.pipe()

    class Closing(Component):
        async def close(self) -> None:
            os.write(tell, b"closed")

    children: list[ChildProcess[State]] = [ChildProcess(Closing), ChildProcess(Component)]

    async def main() -> None:
        running = [asyncio.create_task(child.run(ConnectionConfig(server="here"))) for child in children]
        for child in children:
            while await child.state() is None:
                await asyncio.sleep(0)
        for task in running:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    os.close(tell)
    with os.fdopen(told, "rb") as said:
        assert said.read() == b"closed"


def test_it_ends_with_its_parent_however_that_ends() -> None:
    told, tell = os.pipe()
    parent = os.fork()
    if parent == 0:

        async def main() -> None:
            child: ChildProcess[State] = children[0]
            running = asyncio.create_task(child.run(ConnectionConfig(server="here")))
            while (state := await child.state()) is None:
                await asyncio.sleep(0)
            os.write(tell, b"%d" % state[1])
            await running

        # The second never works.
        children = [ChildProcess(Component), ChildProcess(Component)]
        os.write(tell, b"%d " % children[1]._pid)
        asyncio.run(main())
        os._exit(1)
    os.close(tell)
    with os.fdopen(told, "rb") as said:
        pids = b""
        while pids.count(b" ") < 1 or not pids.split(b" ")[1]:
            pids += os.read(said.fileno(), 100)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert all(map(has_ended, map(int, pids.split())))
