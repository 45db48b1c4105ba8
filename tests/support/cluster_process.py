"""`dralloc up` as users run it: a whole cluster in a process of its own, on a free port of loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STOP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class ClusterProcess:
    """A cluster that is ready. `said` is its output until then."""

    url: str
    kubeconfig: Path
    said: str
    process: subprocess.Popen[str]


@contextmanager
def cluster_process(*options: str) -> Iterator[ClusterProcess]:
    """Start a cluster, and stop it at the end of the block unless it has ended already."""
    with start_cluster(*options) as process:
        try:
            yield ready(process)
        finally:
            process.terminate()
            process.wait(timeout=STOP_TIMEOUT_S)


def start_cluster(*options: str) -> subprocess.Popen[str]:
    """The process, not ready yet, with stdout and stderr in one pipe."""
    command = [sys.executable, "-m", "dralloc", "up", "--port", "0", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ready(process: subprocess.Popen[str]) -> ClusterProcess:
    """Waits until the cluster of the process is ready."""
    assert process.stdout is not None, "it is a pipe"
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        if "Ctrl-C ends it" in line:
            break
    else:
        raise RuntimeError(f"the cluster ended with {process.wait()} before it was ready: {''.join(said)}")
    places = {line.partition("  ")[0]: line.rpartition("  ")[2].strip() for line in map(str.strip, said)}
    return ClusterProcess(
        url=places["web page"].partition("/ui/")[0],
        kubeconfig=Path(places["kubeconfig"]),
        said="".join(said),
        process=process,
    )
