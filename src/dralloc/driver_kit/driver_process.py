"""The process of a driver that the kit starts, kills and restarts."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dralloc.driver_kit.findings import NotTested
from dralloc.node.kubelet.plugin_sockets import shortened

STOP_S: Final = 10.0
COMMAND_S: Final = 120.0
CHUNK_BYTES: Final = 65536


class CommandFailed(Exception):
    """The command cannot be run, or exits with an error."""


@dataclass(slots=True)
class DriverProcess:
    """Runs a command in a process group of its own, which ends with it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    # Keep the end of the output of the command, instead of showing it on the terminal.
    is_quiet: bool = False
    # A command that ends what the command has started outside of its process group, such as a container.
    kill_command: str | None = None
    _process: asyncio.subprocess.Process | None = None
    _pipe: int | None = None
    _last: bytes = b""

    async def start(self) -> None:
        written = self._open_pipe() if self.is_quiet else None
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                env={**os.environ, **self.environment},
                stdout=written,
                stderr=written,
                start_new_session=True,
                # SIGXFSZ stays ignored, as in this process, so that a write to a full disk is an error and not the end.
                restore_signals=False,
            )
        except OSError as error:
            self._close_pipe()
            raise CommandFailed(f"cannot run {self.command[0]}: {error.strerror or error}") from None
        finally:
            if written is not None:
                os.close(written)

    def last_lines(self, count: int) -> tuple[str, ...]:
        """The last lines of the output, shortened."""
        return tuple(map(shortened, self._last.decode(errors="replace").splitlines()[-count:]))

    def _open_pipe(self) -> int:
        """The end of a new pipe for the command: a limit on the size of files must not concern its output."""
        self._pipe, written = os.pipe()
        asyncio.get_running_loop().add_reader(self._pipe, self._copy_output)
        return written

    def _copy_output(self) -> None:
        assert self._pipe is not None, "the pipe is open"
        piece = os.read(self._pipe, CHUNK_BYTES)
        if not piece:
            self._close_pipe()
        self._last = (self._last + piece)[-CHUNK_BYTES:]

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            asyncio.get_running_loop().remove_reader(pipe)
            os.close(pipe)

    def ended(self) -> str:
        """How the command ended; empty while it or one of its child processes runs."""
        if self._process is None or (code := self._process.returncode) is None:
            return ""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 0)
            return ""
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        by_limit = " (SIGXFSZ)" if code > 0 and b"SIGXFSZ" in self._last else ""
        return f"the driver's command {how}{by_limit}"

    async def restart(self) -> None:
        """Kill the driver as a crash would, and start it again."""
        await self._end(signal.SIGKILL)
        await self.start()

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The process is suspended inside the block, with its connections open."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """The processes cannot write a byte to a file inside the block."""
        if not hasattr(resource, "prlimit"):
            raise NotTested("this system cannot limit the files of a running process; use Linux")
        before = {number: _limit_files(number, 0) for number in self._group()}
        try:
            yield
        finally:
            for number, limit in before.items():
                _limit_files(number, limit)

    def _group(self) -> list[int]:
        """The processes of the command that run."""
        assert self._process is not None, "the process was started"
        found = []
        for name in os.listdir("/proc"):
            with suppress(ProcessLookupError, PermissionError):
                if name.isdecimal() and os.getpgid(int(name)) == self._process.pid and not _is_zombie(int(name)):
                    found.append(int(name))
        return found

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None, "the process is running"
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self.kill_command is not None:
            try:
                await run_command(self.kill_command, self.environment)
            except CommandFailed:
                # At the end there may be nothing to kill any more.
                if number is signal.SIGKILL and process.returncode is None:
                    self._process = process
                    raise
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
        self._close_pipe()


def _is_zombie(number: int) -> bool:
    with suppress(OSError):
        return ") Z " in Path(f"/proc/{number}/stat").read_text()
    return True


def _limit_files(number: int, limit: int) -> int:
    """Set the maximum size of files of a process; returns the former one. 0 if the process has ended."""
    with suppress(ProcessLookupError):
        soft, hard = resource.prlimit(number, resource.RLIMIT_FSIZE)
        resource.prlimit(number, resource.RLIMIT_FSIZE, (limit, hard))
        return soft
    return 0


async def run_command(command: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a shell command of the user; raises `CommandFailed`."""
    process = await asyncio.create_subprocess_shell(
        command,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(COMMAND_S):
            output, _ = await process.communicate()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise CommandFailed(f"{command!r} did not end within {COMMAND_S:g} s") from None
    if process.returncode != 0:
        said = output.decode(errors="replace").strip().rpartition("\n")[2]
        raise CommandFailed(f"{command!r} exited with code {process.returncode}{said and f': {said}'}")


@dataclass(frozen=True, slots=True)
class DeviceCommands:
    """The user's commands that take a device away and bring it back; `{device}` and `{pool}` are filled in."""

    lose_command: str
    restore_command: str | None = None

    async def lose(self, pool: str, device: str) -> None:
        await run_command(_of_device(self.lose_command, pool, device))

    async def restore(self, pool: str, device: str) -> bool:
        if self.restore_command is None:
            return False
        await run_command(_of_device(self.restore_command, pool, device))
        return True


def _of_device(command: str, pool: str, device: str) -> str:
    return filled_in([command], {"pool": shlex.quote(pool), "device": shlex.quote(device)})[0]


@dataclass(frozen=True, slots=True)
class RestartCommand:
    """A command that restarts a driver that the kit did not start."""

    command: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def ended(self) -> str:
        return ""

    async def restart(self) -> None:
        await run_command(self.command, self.environment)


def filled_in(command: Sequence[str], places: Mapping[str, Path | str]) -> list[str]:
    """The command with its placeholders, such as `{registry}`, filled in."""
    filled = []
    for word in command:
        for name, place in places.items():
            word = word.replace("{" + name + "}", str(place))
        filled.append(word)
    return filled
