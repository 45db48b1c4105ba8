"""Runs all blocks of a page in order, in a directory and a shell of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.markdown import Block, Command, blocks_of, shows

# Much longer than anything takes that works.
DEADLINE_S: Final = 90.0
EVENTUALLY_S: Final = 60.0
AGAIN_S: Final = 0.2
# Shell state that is kept between commands.
_BEFORE = 'if [ -f "$PAGE_STATE" ]; then . "$PAGE_STATE"; cd "$(cat "$PAGE_STATE.cwd")"; fi\n'
_AFTER = '\nstatus=$?; export -n PATH; export -p > "$PAGE_STATE"; pwd > "$PAGE_STATE.cwd"; exit $status'


class NotAsShown(AssertionError):
    """A block behaves differently from what the page shows."""

    def __init__(self, block: Block, what: str) -> None:
        super().__init__(f"line {block.line}: {what}")


@dataclass
class PageRunner:
    """Runs one page. Use it in a `with` block: background programs end with it."""

    directory: Path
    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    # Searched first for commands, except those in the background.
    programs: Path | None = None
    # Options added to background commands, by prefix of the command.
    background_words: Mapping[str, str] = field(default_factory=dict)
    _printed: str = ""
    # Background programs, the newest last.
    _going_on: list[ExitStack] = field(default_factory=list)

    def __enter__(self) -> PageRunner:
        self.home.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        while self._going_on:
            self._going_on.pop().close()

    def read(self, page: str) -> None:
        """Run the page; raises NotAsShown."""
        blocks = list(blocks_of(page))
        for block in blocks:
            self._run(block)
        self._import_unused(blocks)

    def _run(self, block: Block) -> None:
        if block.not_run is not None:
            return
        if block.file is not None:
            self._write(block, block.file)
        elif block.language == "console":
            codes = [self._run_command(block, command) for command in block.commands()]
            if block.has("fails") and not any(codes):
                raise NotAsShown(block, "no command failed")
        elif block.language == "python":
            self._printed = self._checked(block, [sys.executable, "-W", "error", "-c", block.text])
        elif block.language == "yaml" and not block.has("fragment"):
            manifest = self.home / "manifest.yaml"
            manifest.write_text(block.text)
            self._checked(block, [sys.executable, "-m", "dralloc", "validate", str(manifest)])
        elif block.has("output") and not shows(block.text, self._printed):
            raise NotAsShown(block, f"the program printed\n{self._printed}")

    # --- Files and programs -----------------------------------------------------------------------------------------

    def _write(self, block: Block, name: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)

    def _import_unused(self, blocks: Sequence[Block]) -> None:
        """Import the programs that the page defines and does not use."""
        unused = [block for block in blocks if block.language == "python" and not _is_used(block, blocks)]
        modules = [block.file.removesuffix(".py") for block in unused if block.file is not None]
        if modules:
            self._checked(unused[0], [sys.executable, "-W", "error", "-c", f"import {', '.join(modules)}"])

    def _checked(self, block: Block, words: list[str]) -> str:
        code, printed = self._call(["bash", "-c", f'{_BEFORE}exec "$@"', "bash", *words])
        if code != 0:
            raise NotAsShown(block, f"ended with {code} and printed\n{printed}")
        return printed

    # --- Commands ---------------------------------------------------------------------------------------------------

    def _run_command(self, block: Block, command: Command) -> int:
        if block.has("background"):
            self._start(block, command)
            return 0
        if re.fullmatch(r"\^C\s*(#.*)?", command.text):
            self._going_on.pop().close()
            return 0
        script = f"{_BEFORE}{command.text}{_AFTER}"
        deadline = time.monotonic() + EVENTUALLY_S
        while True:
            code, printed = self._call(["bash", "-c", script])
            wrong = self._fault(block, command, code, printed)
            if wrong is None:
                return code
            if not block.has("eventually") or time.monotonic() > deadline:
                raise NotAsShown(block, f"`{command.text}` {wrong}")
            time.sleep(AGAIN_S)

    def _fault(self, block: Block, command: Command, code: int, printed: str) -> str | None:
        if code > (1 if block.has("fails") else 0):
            return f"ended with {code} and printed\n{printed}"
        if command.output is not None and not shows(command.output, printed):
            return f"printed\n{printed}\nwhere the page shows\n{command.output}"
        return None

    def _call(self, words: list[str]) -> tuple[int, str]:
        """Exit code and output."""
        try:
            done = subprocess.run(
                words,
                cwd=self.directory,
                env=self._environment(self.programs),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"not done after {DEADLINE_S:.0f} s: {words[-1]}") from error
        return done.returncode, done.stdout

    def _environment(self, programs: Path | None = None) -> dict[str, str]:
        path = [Path(sys.executable).parent, os.environ["PATH"]]
        return {
            "PATH": ":".join(map(str, [programs, *path] if programs else path)),
            "HOME": str(self.home),
            "PAGE_STATE": str(self.home / ".page"),
            "LC_ALL": "C.UTF-8",
            "TERM": "dumb",
            "COLUMNS": "120",
            **self.environment,
        }

    # --- What goes on -----------------------------------------------------------------------------------------------

    def _start(self, block: Block, command: Command) -> None:
        text = command.text.partition(" # ")[0]
        for beginning, more in self.background_words.items():
            if text.startswith(beginning):
                text += f" {more}"
        self._going_on.append(ExitStack())
        script = f"{_BEFORE}{text}"
        printed = self._going_on[-1].enter_context(going_on(script, self.directory, self._environment()))
        if not printed.wait_for(command.output or ""):
            raise NotAsShown(block, f"`{text}` printed\n{printed.text}")


def _is_used(file: Block, blocks: Sequence[Block]) -> bool:
    name = file.file or ""
    commands = [block.text for block in blocks if block.language == "console" and block.not_run is None]
    return any(name in text or (name.startswith("test_") and "$ pytest\n" in text) for text in commands)


class Output:
    """The output of a program so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.text = ""
        self._process = process
        self._changed = threading.Condition()
        self._has_ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "it was opened with a pipe"
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    self.text += line
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def wait_until_ended(self) -> None:
        self._reader.join(DEADLINE_S)

    def wait_for(self, shown: str) -> bool:
        """True if the output begins as shown before the deadline."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or shows(shown, self.text, is_beginning=True), DEADLINE_S)
            return not self._has_ended and shows(shown, self.text, is_beginning=True)


@contextmanager
def going_on(script: str, directory: Path, environment: Mapping[str, str]) -> Iterator[Output]:
    """A program in the background; at the end of the block it gets SIGINT and must end cleanly."""
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    output = Output(process)
    try:
        yield output
    finally:
        ended_by_itself = process.poll() is not None
        if not ended_by_itself:
            os.killpg(process.pid, signal.SIGINT)
        try:
            code = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        output.wait_until_ended()
    assert not ended_by_itself, f"ended by itself with {code}:\n{output.text}"
    assert code in (0, 130, -signal.SIGINT), f"ended with {code}:\n{output.text}"
