"""A base image without a registry: the Python that runs the tests, a shell, and the libraries that both need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

# Of the standard library, what an image needs not.
OMITTED: Final = (
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "lib2to3",
    "__pycache__",
    "*.a",
)
SHELL: Final = Path("/bin/sh")
# Debian keeps pip for new environments apart.
WHEELS: Final = Path("/usr/share/python-wheels")
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")


def write_root(root: Path) -> None:
    """Fills the directory with the files of the image."""
    libraries = Path(os.__file__).parent
    executable = Path(sys.executable).resolve()
    shutil.copytree(
        libraries, root / libraries.relative_to("/"), ignore=shutil.ignore_patterns(*OMITTED), symlinks=True
    )
    binaries = [executable, SHELL, *libraries.rglob("lib-dynload/*.so")]
    wheels = WHEELS.glob("*.whl")
    for file in (executable, SHELL, CERTIFICATES, *wheels, *_shared_libraries(binaries)):
        _copy(file, root)
    (root / "tmp").mkdir()
    python = root / "usr" / "bin" / "python3"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.symlink_to(executable)


def _copy(file: Path, root: Path) -> None:
    """Copies the file to its own place, with the links on the way replaced by what they lead to."""
    place = root / file.relative_to("/")
    if file.exists() and not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place)


def _shared_libraries(binaries: list[Path]) -> set[Path]:
    told = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    words = {word for line in told.splitlines() for word in line.split() if word.startswith("/")}
    return {Path(word) for word in words if not word.endswith(":")}
