"""The ConfigMap that other components read has the certificate authority of the server. In virtual time."""

from __future__ import annotations

from pathlib import Path

from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.kube.core_v1 import ConfigMap
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.users import ADMINISTRATOR
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.server import ApiServer
from dralloc.server.store.memory import MemoryStore
from dralloc.testing.api_server import running_api_server
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import TOKEN, loop_clock

NAME = "extension-apiserver-authentication"


def test_the_authority_of_the_newest_start_is_published(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"

    async def scenario() -> None:
        async with MemoryStore() as store:
            for pem in ("first", "second"):
                authority.write_text(pem)
                server = ApiServer(
                    store, clock=loop_clock(), gates=FeatureGates.defaults(), enforces_roles=True, authority=authority
                )
                async with running_api_server(server):
                    application = ApiApplication(server, Authenticator({TOKEN: ADMINISTRATOR}))
                    client = AsyncClient(InProcessTransport(application, token=TOKEN))
                    found = await client.get(ConfigMap, NAME, namespace="kube-system")
                    assert (found.data or {})["client-ca-file"] == pem

    run_virtual(scenario())
