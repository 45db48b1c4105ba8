"""The same measurement on three kinds of cluster: one that is there, one in processes of its own, one inside this process."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dralloc.assembly.cluster import ClusterSettings, cluster_in_process
from dralloc.assembly.garbage import collect_rarely
from dralloc.assembly.processes import local_cluster
from dralloc.assembly.throughput import Scale, Throughput, clean_up, measure
from dralloc.assembly.workloads import Claims, Workload
from dralloc.client.calls import Calls
from dralloc.client.credentials import find_connection
from dralloc.client.http import HttpTransport
from dralloc.controllers.running import CONTROLLERS


async def measure_server(kubeconfig: Path | None, context: str | None, workload: Workload, scale: Scale) -> Throughput:
    """On a server with a scheduler that somebody else runs; nothing is left behind."""
    async with _calls(kubeconfig, context) as calls:
        try:
            return await measure(calls, workload, scale)
        finally:
            await clean_up(calls, workload, scale)


async def measure_local_cluster(workload: Workload, scale: Scale) -> Throughput:
    """On a cluster that exists only for this, on a store in SQLite."""
    with (
        tempfile.TemporaryDirectory() as directory,
        local_cluster(Path(directory), with_controllers=workload.claims is Claims.TEMPLATE) as kubeconfig,
    ):
        async with _calls(kubeconfig) as calls:
            return await measure(calls, workload, scale)


@asynccontextmanager
async def _calls(kubeconfig: Path | None, context: str | None = None) -> AsyncIterator[Calls]:
    """Calls of a client that, like most programs, says nothing about who owns fields."""
    calls = Calls(HttpTransport(find_connection(kubeconfig, context=context)), field_manager="")
    try:
        yield calls
    finally:
        await calls.close()


async def measure_in_process(workload: Workload, scale: Scale) -> Throughput:
    """With server, scheduler and controllers in this process, on a store in memory."""
    needs_controllers = workload.claims is Claims.TEMPLATE
    settings = ClusterSettings(controllers=tuple(CONTROLLERS) if needs_controllers else ())
    async with cluster_in_process(settings) as cluster:
        # As `dralloc up` does.
        collect_rarely()
        return await cluster.components.guard(measure(Calls(cluster.transport, field_manager=""), workload, scale))
