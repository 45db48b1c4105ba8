"""Files that are replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from dralloc.kubelet.atomic_files import remove_file, write_atomically


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"old")
    (tmp_path / ".state.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


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
