"""Exec and attach: a command beside the process of a container, or the process itself, with the channels of a client."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from dralloc.node.child_process import exit_code
from dralloc.node.streaming.command_channels import STDERR, STDOUT, SUCCESS, CommandChannels, Status, failure
from dralloc.node.streaming.container_logs import ContainerLog
from dralloc.node.streaming.descriptors import read_some, resize_terminal, write_all
from dralloc.node.streaming.piece_queue import PieceQueue

# Processes that a command left behind may hold its output open; it is read for so long after the command's end.
_OUTPUT_AFTER_EXIT_S: Final = 1.0


class RunningCommand:
    """A process with pipes or a terminal."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: str, *, tty: bool) -> None:
        """Raises OSError or ValueError if the command cannot be run."""
        self._ours: list[int] = []
        theirs: list[int] = []
        try:
            if tty:
                self.terminal, slave = pty.openpty()
                self._ours, theirs = [self.terminal], [slave]
                stdin = stdout = stderr = slave
                self.stdin, self.outputs = self.terminal, {STDOUT: self.terminal}
            else:
                self.terminal = -1
                (stdin, self.stdin), (read_out, stdout), (read_err, stderr) = os.pipe(), os.pipe(), os.pipe()
                self._ours, theirs = [self.stdin, read_out, read_err], [stdin, stdout, stderr]
                self.outputs = {STDOUT: read_out, STDERR: read_err}
            for descriptor in self._ours:
                os.set_blocking(descriptor, False)
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=directory,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except BaseException:
            self.close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close_stdin(self) -> None:
        if self.terminal < 0 and self.stdin in self._ours:
            self._ours.remove(self.stdin)
            os.close(self.stdin)

    def close(self) -> None:
        for descriptor in self._ours:
            os.close(descriptor)
        self._ours = []


async def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    channels: CommandChannels,
    *,
    stdin: bool,
    tty: bool,
) -> None:
    """Run a command for a client, to its end or until the client is gone; then it is killed."""
    try:
        running = RunningCommand(command, environment, directory, tty=tty)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        # The exit code that shells give.
        return await channels.finish(failure(f"cannot run {command[0]}: {reason}", exit_code=126))
    tasks: list[asyncio.Task[None]] = []
    try:
        outputs = [
            asyncio.create_task(_send_output(descriptor, channels, channel))
            for channel, descriptor in running.outputs.items()
        ]
        tasks += outputs
        if tty:
            tasks.append(asyncio.create_task(_pass_sizes(running.terminal, channels.resizes)))
        if stdin:
            tasks.append(asyncio.create_task(_pass_input(running, channels.stdin)))
        elif not tty:
            running.close_stdin()
        status = await _status(running, channels)
        await asyncio.wait(outputs, timeout=_OUTPUT_AFTER_EXIT_S)
        await _end(tasks)
        await channels.finish(status)
    finally:
        running.kill()
        running.process.wait()
        # Descriptors are closed after their last use: another file may get the same number.
        await _end(tasks)
        running.close()
    return None


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _status(running: RunningCommand, channels: CommandChannels) -> Status:
    """How the command ended; it is killed when the client is gone."""
    ending = asyncio.create_task(exit_code(running.process))
    leaving = asyncio.create_task(channels.gone.wait())
    try:
        await asyncio.wait((ending, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            running.kill()
        code = await ending
    finally:
        ending.cancel()
        leaving.cancel()
    code = 128 - code if code < 0 else code
    return SUCCESS if code == 0 else failure(f"command terminated with non-zero exit code: {code}", exit_code=code)


async def attach(
    log: ContainerLog,
    stdin: int | None,
    terminal: int | None,
    channels: CommandChannels,
    *,
    input_ended: Callable[[], None],
) -> None:
    """Show what a container writes from now on, and pass input to it, until it ends or the client is gone."""
    tasks = [asyncio.create_task(_show(log, channels)), asyncio.create_task(_gone(channels))]
    # The container may end first, and its descriptors with it: these are the client's own.
    if terminal is not None:
        tasks.append(asyncio.create_task(_with_copy(terminal, lambda copy: _pass_sizes(copy, channels.resizes))))
    if stdin is not None:
        tasks.append(asyncio.create_task(_pass_to_container(stdin, channels.stdin, input_ended)))
    try:
        await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(tasks)
    await channels.finish(SUCCESS)


async def _gone(channels: CommandChannels) -> None:
    await channels.gone.wait()


async def _with_copy(descriptor: int, use: Callable[[int], Awaitable[None]]) -> None:
    copy = os.dup(descriptor)
    try:
        await use(copy)
    finally:
        os.close(copy)


async def _show(log: ContainerLog, channels: CommandChannels) -> None:
    async for piece in log.follow_from_now():
        await channels.send(STDOUT, piece)


async def _send_output(descriptor: int, channels: CommandChannels, channel: int) -> None:
    while piece := await read_some(descriptor):
        await channels.send(channel, piece)


async def _pass_input(running: RunningCommand, pieces: PieceQueue) -> None:
    with suppress(OSError):
        await _pass_pieces(running.stdin, pieces)
        if running.terminal >= 0:
            # Ctrl-D: a terminal has no end of its own.
            await write_all(running.terminal, b"\x04")
    running.close_stdin()


async def _pass_to_container(stdin: int, pieces: PieceQueue, input_ended: Callable[[], None]) -> None:
    await _with_copy(stdin, lambda copy: _pass_pieces(copy, pieces))
    input_ended()


async def _pass_pieces(descriptor: int, pieces: PieceQueue) -> None:
    with suppress(OSError):
        while piece := await pieces.get():
            await write_all(descriptor, piece)


async def _pass_sizes(terminal: int, sizes: PieceQueue) -> None:
    """Sizes are JSON objects, one for each piece."""
    while piece := await sizes.get():
        with suppress(ValueError, TypeError, KeyError, OSError):
            size: dict[str, Any] = json.loads(piece)
            resize_terminal(terminal, int(size["Width"]), int(size["Height"]))
