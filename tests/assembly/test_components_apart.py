"""Scheduler and controllers in processes of their own go on after the certificate authority of their server was replaced."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from dralloc.api.core_v1 import Node
from dralloc.api.pod_v1 import Pod
from dralloc.apiserver.credentials.certificates import (
    retire_authorities,
    rotate_authority,
    rotate_server_certificate,
)
from dralloc.apiserver.server_process import RunningServer, ServerSettings, run_server
from dralloc.assembly.cluster import ClusterSettings, InProcessCluster, components_on, fleet
from dralloc.assembly.components_apart import ComponentsApart, fork_components
from dralloc.client.async_client import AsyncClient
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import TransportError
from dralloc.testing.builders import request
from tests.support.tcp_proxy import TcpProxy
from tests.support.workloads import claim_template, pod, template

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the processes are forked"),
    # Those that run tests in parallel have threads; `dralloc up` has none when it forks.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

TEMPLATE = claim_template("share", request("gpu", device_class="gpu.example.com", capacity={"memory": "20Gi"}))


async def run_a_pod(cluster: InProcessCluster, name: str) -> None:
    """It needs a claim from the controllers, and devices from the scheduler."""
    await cluster.client.create(pod(name, {"gpu": template("share")}))
    async with asyncio.timeout(60):
        async for event in cluster.client.watch(Pod, fields=f"metadata.name={name}"):
            if event.object.status.phase == "Running":
                return


async def shows_newest_authority(running: RunningServer) -> None:
    """Returns when the server, which looks at its files once a second, has a certificate of the only authority."""
    assert running.authority is not None
    connection = ConnectionConfig(
        server=running.local_url, token=running.token, authority_pem=running.authority.read_text()
    )
    async with asyncio.timeout(60):
        while True:
            async with AsyncClient(HttpTransport(connection)) as client:
                try:
                    await client.list(Node)
                except TransportError:
                    continue
                return


@asynccontextmanager
async def cluster_behind(
    settings: ServerSettings, cluster: ClusterSettings, apart: ComponentsApart
) -> AsyncIterator[tuple[RunningServer, InProcessCluster, Callable[[], None]]]:
    """The connections of the components can be cut."""
    async with run_server(settings) as running, TcpProxy(running.local_url.removeprefix("https://")) as proxy:
        behind = replace(running, local_url=f"https://{proxy.endpoint}")
        start = partial(apart.start, behind)
        async with components_on(running.application, running.token, cluster, start) as components:
            yield running, components, proxy.reset_clients


def test_components_trust_a_new_authority_when_their_connections_are_cut(tmp_path: Path) -> None:
    cluster = ClusterSettings(fleets=(fleet("gpu", 1),))
    apart = fork_components(cluster)
    settings = ServerSettings(data_dir=tmp_path, port=0, store="memory://", tokens=apart.users())

    async def scenario() -> None:
        async with cluster_behind(settings, cluster, apart) as (running, components, cut):
            await components.client.create(TEMPLATE)
            await run_a_pod(components, "before")
            for step in (rotate_authority, rotate_server_certificate, retire_authorities):
                step(tmp_path / "tls", datetime.now(UTC))
            await shows_newest_authority(running)
            cut()
            await run_a_pod(components, "after")

    asyncio.run(scenario())
