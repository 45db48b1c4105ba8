"""Artefacts of a release and empty environments to install them in, for tests that do what users do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

from dralloc import __version__
from dralloc.cli.product_version import RECORD
from tests.support.source_tree import ROOT

# Where our own programs are.
PROGRAMS: Final = Path(sys.executable).parent
# A program that builds a package would need one of them.
COMPILERS: Final = {"CC": "/bin/false", "CXX": "/bin/false"}
# No package but ours may be built on the user's machine.
PREBUILT_ONLY: Final = {"PIP_ONLY_BINARY": ":all:", "UV_NO_BUILD": "1"}
# pip is slow on a busy machine. Tests have a limit of their own.
PATIENCE_S: Final = 600


def build_dist(directory: Path, *options: str) -> Path:
    """The directory with what `make dist` builds."""
    run([sys.executable, "-m", "scripts.build_dist", "--directory", str(directory), *options], ROOT)
    return directory


def only(directory: Path, pattern: str) -> Path:
    (found,) = directory.glob(pattern)
    return found


def version_line(dist: Path) -> str:
    """What `dralloc --version` prints once the wheel is installed."""
    with zipfile.ZipFile(only(dist, "*.whl")) as wheel:
        commit = wheel.read(f"dralloc/{RECORD}").decode().strip()
    return f"dralloc {__version__} (commit {commit})\n"


@cache
def interpreters() -> dict[str, Path]:
    """A Python of each supported minor version on this machine, by version; the one that runs is always there."""
    found = {_minor(sys.version): Path(sys.executable)}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in (f"3.{number}" for number in range(11, 15)):
        on_path = shutil.which(f"python{minor}")
        for candidate in [
            *([on_path] if on_path else []),
            *map(str, sorted(pyenv.glob(f"{minor}.*/bin/python{minor}"))),
        ]:
            done = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
            # A shim of pyenv exists for versions that are not chosen.
            if done.returncode == 0 and minor not in found and _minor(done.stdout.split()[1]) == minor:
                found[minor] = Path(candidate)
    return found


def _minor(version: str) -> str:
    (minor,) = re.findall(r"^3\.\d+", version)
    return str(minor)


def outside(directory: Path, **variables: str) -> dict[str, str]:
    """The environment of a user who has neither our environment nor a compiler."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "PYTEST", "GIT_"))
    }
    return {**kept, **COMPILERS, "HOME": str(directory), "UV_CACHE_DIR": _uv_cache(), **variables}


def environment_of(home: Path, **variables: str) -> dict[str, str]:
    """The environment of a user with this home, our programs on the path and nothing else to find a cluster."""
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return {**kept, "HOME": str(home), "PATH": path, "TERM": "dumb", **variables}


@cache
def _uv_cache() -> str:
    """uv's cache of packages. Another home would mean another download for each test."""
    done = subprocess.run([sys.executable, "-m", "uv", "cache", "dir"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(command: list[str], directory: Path, environment: dict[str, str] | None = None) -> str:
    """The output of a command that succeeds."""
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
