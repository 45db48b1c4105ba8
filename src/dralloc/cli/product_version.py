"""The version of dralloc and the commit that it was made from.

`__version__` in `dralloc/__init__.py` is the one place of the version. The commit is recorded in wheels and source
archives when they are built (`hatch_build.py` calls this module, so it imports nothing but the standard library); a
clone answers for itself. An installed wheel never starts git.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from dralloc import __version__

PACKAGE: Final = Path(__file__).parents[1]
# In the package `dralloc` of wheels and source archives, never of a clone.
RECORD: Final = "commit.txt"
_GIT_PATIENCE_S: Final = 10


def version_text() -> str:
    """The version, with the commit where it is known: `0.1.0 (commit 402c9635ab12)`."""
    commit = recorded_commit(PACKAGE) or commit_of_clone(PACKAGE.parents[1])
    return f"{__version__} (commit {commit})" if commit else __version__


def recorded_commit(package: Path) -> str:
    """The commit that the build recorded; empty if there is no record."""
    try:
        return (package / RECORD).read_text().strip()
    except OSError:
        return ""


def commit_of_clone(root: Path) -> str:
    """The commit of the clone at `root`, with `-dirty` if tracked files were changed; empty if that is no clone."""
    # A repository around the directory would be another project's.
    if not (root / ".git").exists():
        return ""
    # Hooks of git point these variables at the repository that they run for.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_GIT_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
