"""`dralloc apiserver` as users run it: a process of its own, with TLS and a kubeconfig, on a free port of loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.child_process import child_process

STOP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class ServerProcess:
    url: str
    kubeconfig: Path
    page: str
    process: subprocess.Popen[str]


@contextmanager
def server_process(directory: Path, *options: str) -> Iterator[ServerProcess]:
    """Start a server that keeps its data in the directory, and stop it at the end of the block."""
    command = [sys.executable, "-m", "dralloc", "apiserver", "--data-dir", str(directory), "--port", "0", *options]
    with child_process(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = _read_announcement(process)
            yield ServerProcess(
                url=said["serving on"],
                kubeconfig=Path(said["kubeconfig:"]),
                page=said["web page:"],
                process=process,
            )
        finally:
            process.terminate()
            process.wait(timeout=STOP_TIMEOUT_S)


def _read_announcement(process: subprocess.Popen[str]) -> dict[str, str]:
    """The values that the server prints when it is ready, by the words before them."""
    assert process.stdout is not None
    said: dict[str, str] = {}
    for line in process.stdout:
        words, _, value = line.strip().rpartition(" ")
        said[words] = value
        if "web page:" in said:
            return said
    raise RuntimeError(f"the server ended with {process.wait()} before it was ready")
