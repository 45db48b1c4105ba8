"""The processes of the campaign's cluster: each can be killed at any moment and is started again with the same arguments."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path

from tests.support.etcd_server import EtcdServer

READY_TIMEOUT_S = 120.0
POLL_S = 0.05


class KilledProcess:
    """A program that prints a line when it is ready. What it logs is in a file."""

    def __init__(self, name: str, command: Sequence[str], ready: str, directory: Path) -> None:
        self.name = name
        self.kills = self.kills_during_start = self.own_ends = 0
        self._command = command
        self._ready_text = ready.encode()
        self._log = directory / f"{name}.log"
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()

    async def start(self) -> None:
        """Returns when the process runs, usually long before it is ready."""
        self.ready = asyncio.Event()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, stdout=PIPE, stderr=log)
        self._reading = asyncio.create_task(self._read(self._process, self.ready))

    async def kill(self) -> None:
        """Kills the process; counts what kind of kill it was."""
        assert self._process is not None
        assert self._reading is not None
        self.kills += 1
        self.kills_during_start += not self.ready.is_set()
        if self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._reading

    async def revive(self) -> None:
        """Starts a process again that ended by itself, because what it needs was down."""
        if self.has_ended:
            self.own_ends += 1
            await self.start()

    async def until_ready(self) -> None:
        """Returns when the process is ready; it is started again if it ends before."""
        async with asyncio.timeout(READY_TIMEOUT_S):
            while not self.ready.is_set():
                assert self._reading is not None
                waiting = asyncio.ensure_future(self.ready.wait())
                await asyncio.wait((waiting, self._reading), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if not self.ready.is_set():
                    assert self._process is not None
                    await self._process.wait()
                    await self.revive()

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    def logged(self) -> str:
        return self._log.read_text(errors="replace")

    async def _read(self, process: Process, ready: asyncio.Event) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if self._ready_text in line:
                ready.set()


def dralloc(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dralloc", *arguments]


class KilledEtcd(KilledProcess):
    """An etcd; it is ready when it accepts connections."""

    def __init__(self, server: EtcdServer, directory: Path) -> None:
        super().__init__("etcd", server.command, "", directory)
        self._server = server

    async def _read(self, process: Process, ready: asyncio.Event) -> None:
        reading = asyncio.ensure_future(super()._read(process, asyncio.Event()))
        while not reading.done() and not ready.is_set():
            if await asyncio.to_thread(self._server.accepts):
                ready.set()
            else:
                await asyncio.wait((reading,), timeout=POLL_S)
        await reading
