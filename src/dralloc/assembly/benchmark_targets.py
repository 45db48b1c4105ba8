"""Throughput of three kinds of cluster: an existing one, one in processes of its own, one inside this process."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dralloc.assembly.benchmark_workloads import BenchmarkWorkload, ClaimSource
from dralloc.assembly.cluster import ClusterSettings, cluster_in_process
from dralloc.assembly.component_processes import cluster_of_up, local_cluster
from dralloc.assembly.gc_settings import collect_rarely
from dralloc.assembly.throughput import Scale, Throughput, clean_up, measure
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import read_kubeconfig
from dralloc.client.transport import Transport
from dralloc.controllers.controller_set import WITHOUT_NODES


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
