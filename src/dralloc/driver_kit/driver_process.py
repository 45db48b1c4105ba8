"""The process of a driver that the kit starts, kills and restarts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

STOP_S: Final = 10.0


class CommandFailed(Exception):
    """The command cannot be run, or exits with an error."""


@dataclass(slots=True)
class DriverProcess:
    """Runs a command in a process group of its own, which ends with it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    output: IO[bytes] | None = None
    _process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                env={**os.environ, **self.environment},
                stdout=self.output,
                stderr=self.output,
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailed(f"cannot run {self.command[0]}: {error.strerror or error}") from None

    def ended(self) -> str:
        """How the command ended; empty while it or one of its child processes runs."""
        if self._process is None or (code := self._process.returncode) is None:
            return ""
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
            return f"the driver's command {how}"
        return ""

    async def restart(self) -> None:
        """Kill the driver as a crash would, and start it again."""
        await self._end(signal.SIGKILL)
        await self.start()

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Suspend the process, with its connections open."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None, "the process is running"
        os.killpg(self._process.pid, number)

    async def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for sent in (number, signal.SIGKILL):
            try:
                os.killpg(process.pid, sent)
            except ProcessLookupError:
                break
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
                break
            except TimeoutError:
                continue
        await process.wait()


@dataclass(frozen=True, slots=True)
class RestartCommand:
    """A command that restarts a driver that the kit did not start."""

    command: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def ended(self) -> str:
        return ""

    async def restart(self) -> None:
        process = await asyncio.create_subprocess_shell(self.command, env={**os.environ, **self.environment})
        if await process.wait() != 0:
            raise CommandFailed(f"{self.command!r} exited with code {process.returncode}")


def filled_in(command: Sequence[str], places: Mapping[str, Path | str]) -> list[str]:
    """The command with its placeholders, such as `{registry}`, filled in."""
    filled = []
    for word in command:
        for name, place in places.items():
            word = word.replace("{" + name + "}", str(place))
        filled.append(word)
    return filled
