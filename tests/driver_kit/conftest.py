"""A directory for sockets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path, because the length of a socket path is limited."""
    with tempfile.TemporaryDirectory(prefix="d-") as path:
        yield Path(path)
