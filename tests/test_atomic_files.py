"""Files that are replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dralloc.atomic_files import remove_file, write_atomically
from tests.support.limited_files import files_of_at_most


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"old")
    (tmp_path / f".state.{os.getpid()}").mkdir()
    with pytest.raises(OSError, match="directory") as raised:
        write_atomically(path, b"new")
    assert (raised.value.filename, path.read_bytes()) == (str(path), b"old")
    assert str(raised.value) == f"[Errno 21] Is a directory: '{path}'"


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    """Nor a device: `/dev/stdout` would be gone for the whole machine."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="Not a regular file"):
        write_atomically(path, b"new")
    assert (path.is_fifo(), list(tmp_path.iterdir())) == (True, [path])


def test_an_error_without_room_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"old")
    with pytest.raises(OSError, match="large") as raised, files_of_at_most(10):
        write_atomically(path, b"new" * 100)
    assert (raised.value.filename, path.read_bytes(), list(tmp_path.iterdir())) == (str(path), b"old", [path])


def test_the_mode_is_kept_and_no_temporary_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"content", mode=0o640)
    assert (path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (0o640, [path])


def test_removing_a_file_twice_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"content")
    remove_file(path)
    remove_file(path)
    assert not path.exists()
