"""Keeps fast tests from what only `make system` installs, so that they pass in a fresh clone.

Whoever writes such a test has everything installed, and would not notice.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TOOLS: Final = ROOT / ".tools"
INSTALLER: Final = ROOT / "scripts" / "install-system-tools"
# Other names under which tests look for them, and what comes with them.
OTHER_NAMES: Final = ("chromium-browser", "google-chrome", "kubectl", "node", "protoc")
REMEDY: Final = "a test that needs what only `make system` installs is marked `real`"
_SCRIPT: Final = f"#!/bin/sh\necho '{REMEDY}' >&2\nexit 127\n"


class SystemPrograms:
    """What `make system` installs. While it is hidden, its programs fail, and its files cannot be opened."""

    def __init__(self, directory: Path) -> None:
        self._is_hidden = False
        # If the machine has no kubectl, pages and tests use Debian's from `make system`.
        self._shown = f"{os.environ['PATH']}:{TOOLS / 'kubectl-debian' / 'usr' / 'bin'}"
        self._hidden = f"{directory}:{os.environ['PATH']}"
        (directory / "absent").write_text(_SCRIPT)
        (directory / "absent").chmod(0o755)
        for name in installed_programs():
            (directory / name).symlink_to("absent")
        sys.addaudithook(self._check)
        os.environ["PATH"] = self._shown

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide them inside the block."""
        self._is_hidden = True
        os.environ["PATH"] = self._hidden
        try:
            yield
        finally:
            self._is_hidden = False
            os.environ["PATH"] = self._shown

    def _check(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "subprocess.Popen") and self._is_hidden and f"{TOOLS}/" in str(arguments[0]):
            pytest.fail(f"{arguments[0]}: {REMEDY}")


def installed_programs() -> frozenset[str]:
    """The programs whose absence makes the installer install a package."""
    found = re.findall(r"^has ([\w-]+) \|\|", INSTALLER.read_text(), re.MULTILINE)
    assert found, INSTALLER
    return frozenset((*found, *OTHER_NAMES))
