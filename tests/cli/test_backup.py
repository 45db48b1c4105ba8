"""`dralloc backup` and `dralloc restore`: what they say of places that they cannot write, and what they leave there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.server.store.sqlite import SqliteStore
from tests.support.small_disk import SmallDisk

ENDINGS = ((signal.SIGTERM, 143), (signal.SIGINT, 130))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a megabyte."""
    directory = tmp_path_factory.mktemp("source")

    async def fill() -> None:
        async with await SqliteStore.open(directory / "state.db") as store:
            await asyncio.gather(*(store.create(f"/{number}", b"x" * 10_000) for number in range(100)))

    asyncio.run(fill())
    assert run("backup", "--data-dir", directory, directory / "b").exit_code == 0
    return directory / "b"


def test_a_full_disk_is_named_and_left_as_it_was(backup: Path, small_disk: SmallDisk) -> None:
    place = small_disk.directory
    small_disk.fill()
    before = sorted(place.iterdir())
    restored = run("restore", backup, "--data-dir", place)
    written = run("backup", "--data-dir", backup.parent, place / "b")
    after = sorted(place.iterdir())
    small_disk.free()
    assert (restored.exit_code, written.exit_code, after) == (2, 2, before)
    assert "cannot restore: " in restored.stderr
    assert f"cannot write {place / 'b'}: " in written.stderr


def test_places_that_are_none(backup: Path, tmp_path: Path) -> None:
    restored = run("restore", backup, "--data-dir", backup)
    assert (restored.exit_code, f"cannot restore: {backup}" in restored.stderr) == (2, True), restored.stderr
    written = run("backup", "--data-dir", backup.parent, tmp_path)
    assert (written.exit_code, f"cannot write {tmp_path}: Is a directory" in written.stderr) == (2, True)
    assert not list(tmp_path.iterdir())
    os.mkfifo(tmp_path / "pipe")
    written = run("backup", "--data-dir", backup.parent, tmp_path / "pipe")
    assert (written.exit_code, f"cannot write {tmp_path / 'pipe'}: Not a regular file" in written.stderr) == (2, True)
    assert [(each.name, each.is_fifo()) for each in tmp_path.iterdir()] == [("pipe", True)]


def test_a_symbolic_link_names_the_new_backup(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    latest, file = tmp_path / "latest", tmp_path / "disk" / "b"
    latest.symlink_to(file)
    assert run("backup", "--data-dir", backup.parent, latest).exit_code == 0
    assert (latest.is_symlink(), file.read_bytes() == backup.read_bytes()) == (True, True)
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(("number", "code"), ENDINGS, ids=["SIGTERM", "SIGINT"])
def test_a_backup_that_is_told_to_end_leaves_no_file(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """The unfinished file is a pipe here, so the command cannot finish before it gets the signal."""
    source, place = tmp_path / "source", tmp_path / "place"
    source.mkdir()
    place.mkdir()

    async def fill() -> None:
        async with await SqliteStore.open(source / "state.db") as store:
            await asyncio.gather(*(store.create(f"/{number}", b"x" * 1_000) for number in range(2_000)))

    asyncio.run(fill())
    with _started_when_told("backup", "--data-dir", source, place / "b") as process:
        unfinished = place / f".b.{process.pid}"
        os.mkfifo(unfinished)
        _start(process)
        with unfinished.open("rb") as written:
            assert written.read(1)
            process.send_signal(number)
            written.read()
        assert process.wait() == code
    assert not list(place.iterdir())


@pytest.mark.parametrize(("number", "code"), ENDINGS, ids=["SIGTERM", "SIGINT"])
def test_a_restore_that_is_told_to_end_does_so_in_order(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """The backup is a pipe here, so the command waits for more of it when it gets the signal."""
    backup = tmp_path / "b"
    os.mkfifo(backup)
    command = [sys.executable, "-m", "dralloc", "restore", str(backup), "--data-dir", str(tmp_path / "new")]
    with subprocess.Popen(command) as process, backup.open("wb"):
        process.send_signal(number)
        assert process.wait() == code


def _started_when_told(*arguments: object) -> subprocess.Popen[bytes]:
    """A command whose process ID is known before it begins."""
    command = [sys.executable, "-m", "dralloc", *(str(each) for each in arguments)]
    return subprocess.Popen(["sh", "-c", 'read _; exec "$@"', "sh", *command], stdin=subprocess.PIPE)


def _start(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
