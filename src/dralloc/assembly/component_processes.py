"""A cluster on this machine with one process for each component."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from dralloc.controllers.controller_set import WITHOUT_NODES

STOP_S: Final = 15.0


class DidNotStart(Exception):
    """A component ended before it was ready; the message has its name and output."""


@contextmanager
def local_cluster(
    directory: Path, *, with_controllers: bool, store: str | None = None, gates: str = ""
) -> Iterator[Path]:
    """API server, scheduler and optionally controllers inside the block; yields the kubeconfig."""
    kubeconfig = directory / "kubeconfig"
    storing = ("--store", store) if store else ()
    gated = ("--feature-gates", gates) if gates else ()
    server = ("apiserver", "--insecure-http", "--port", "0", "--data-dir", str(directory), *storing)
    with ExitStack() as stack:
        stack.enter_context(_component((*server, *gated, "--kubeconfig", str(kubeconfig)), "kubeconfig: "))
        stack.enter_context(_component(("scheduler", *gated, "--kubeconfig", str(kubeconfig)), "scheduling on "))
        if with_controllers:
            # No agent keeps the nodes alive.
            controllers = ("controllers", *gated, "--kubeconfig", str(kubeconfig), "--only", ",".join(WITHOUT_NODES))
            stack.enter_context(_component(controllers, "working on "))
        yield kubeconfig


@contextmanager
def cluster_of_up(directory: Path) -> Iterator[Path]:
    """`dralloc up` without simulated nodes inside the block; yields the kubeconfig."""
    options = ("--no-nodes", "--port", "0", "--data-dir", str(directory))
    with _component(("up", *options), "dralloc is up "):
        yield directory / "kubeconfig"


@contextmanager
def _component(arguments: Sequence[str], ready: str) -> Iterator[None]:
    """A `dralloc` command inside the block, after it has printed that it is ready."""
    command = [sys.executable, "-m", "dralloc", *arguments]
    # Its modules are ours, also where they are not installed: the archive of the kubectl plugin.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment)
    assert process.stdout is not None, "stdout is a pipe"
    try:
        printed: list[str] = []
        for line in process.stdout:
            printed.append(line)
            if line.startswith(ready):
                break
        else:
            raise DidNotStart(f"dralloc {arguments[0]}: {''.join(printed).strip() or 'it ended without output'}")
        yield
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
