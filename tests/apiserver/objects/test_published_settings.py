"""The ConfigMap that other components read follows the certificate authority of the server. In virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dralloc.access.users import ADMINISTRATOR
from dralloc.api.core_v1 import ConfigMap
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.server import ApiServer
from dralloc.assembly.api_server import running_api_server
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.primitives.features import FeatureGates
from dralloc.store.memory import MemoryStore
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import TOKEN, loop_clock

NAME = "extension-apiserver-authentication"


async def becomes(client: AsyncClient, pem: str) -> None:
    """Returns when the ConfigMap has the authority."""
    async for event in client.watch(ConfigMap, namespace="kube-system", fields=f"metadata.name={NAME}"):
        if (event.object.data or {})["client-ca-file"] == pem:
            return


def test_a_replaced_authority_is_published(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("first")

    async def scenario() -> None:
        async with MemoryStore() as store:
            server = ApiServer(
                store, clock=loop_clock(), gates=FeatureGates.defaults(), enforces_roles=True, authority=authority
            )
            async with running_api_server(server), asyncio.timeout(600):
                application = ApiApplication(server, Authenticator({TOKEN: ADMINISTRATOR}))
                client = AsyncClient(InProcessTransport(application, token=TOKEN))
                await becomes(client, "first")
                # As while it is replaced by hand.
                authority.unlink()
                await asyncio.sleep(60)
                authority.write_text("second")
                await becomes(client, "second")

    run_virtual(scenario())
