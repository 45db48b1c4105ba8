"""Throughput of three kinds of cluster: an existing one, one in processes of its own, one inside this process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import read_kubeconfig
from dralloc.client.transport import Transport
from dralloc.controllers.controller_set import WITHOUT_NODES
from dralloc.testing.benchmark_workloads import BenchmarkWorkload, ClaimSource
from dralloc.testing.cluster import ClusterSettings, cluster_in_process
from dralloc.testing.gc_settings import collect_rarely
from dralloc.testing.throughput import Scale, Throughput, clean_up, measure


async def measure_server(transport: Transport, workload: BenchmarkWorkload, scale: Scale) -> Throughput:
    """Measure an existing cluster; everything created is deleted."""
    try:
        return await measure(transport, workload, scale)
    finally:
        await clean_up(transport, workload, scale)


async def measure_local_cluster(workload: BenchmarkWorkload, scale: Scale) -> Throughput:
    """Measure a new cluster in processes of its own, with a SQLite store."""
    with (
        tempfile.TemporaryDirectory() as directory,
        local_cluster(Path(directory), with_controllers=workload.claims is ClaimSource.TEMPLATE) as kubeconfig,
    ):
        return await measure_at(kubeconfig, workload, scale)


async def measure_up(workload: BenchmarkWorkload, scale: Scale) -> Throughput:
    """Measure `dralloc up`, with a SQLite store, under load from this process."""
    with tempfile.TemporaryDirectory() as directory, cluster_of_up(Path(directory)) as kubeconfig:
        return await measure_at(kubeconfig, workload, scale)


async def measure_at(kubeconfig: Path, workload: BenchmarkWorkload, scale: Scale) -> Throughput:
    """Measure the cluster of a kubeconfig over HTTP."""
    transport = HttpTransport(read_kubeconfig(kubeconfig))
    try:
        return await measure(transport, workload, scale)
    finally:
        await transport.close()


async def measure_in_process(workload: BenchmarkWorkload, scale: Scale) -> Throughput:
    """Measure a new cluster inside this process, with a store in memory."""
    needs_controllers = workload.claims is ClaimSource.TEMPLATE
    settings = ClusterSettings(controllers=WITHOUT_NODES if needs_controllers else ())
    async with cluster_in_process(settings) as cluster:
        # As `dralloc up` does.
        collect_rarely()
        return await cluster.components.guard(measure(cluster.transport, workload, scale))


# --- Component processes --------------------------------------------------------------------------------------------
# A cluster on this machine with one process for each component.


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
