"""Whom a listener lets in: tokens, client certificates, loopback, other sites."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import pytest

from dralloc.server.server_process import BadServerSettings, ServerSettings, run_server
from tests.server.http.listener_site import running, send
from tests.support.client_certificates import client_certificate
from tests.support.local_api import CLAIMS, claim_document

pytestmark = pytest.mark.slow


def test_tls_and_tokens(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, plain=False) as site:
            trusting = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
            streams = await site.connect(trusting)
            code, body = await send(streams, "GET", CLAIMS)
            assert (code, json.loads(body)["reason"]) == (401, "Unauthorized")
            assert (await send(streams, "GET", "/metrics"))[0] == 401
            assert (await send(streams, "GET", "/healthz"))[0] == 401
            assert (await send(streams, "GET", "/healthz", authorization=f"Bearer {site.server.token}"))[0] == 200
            assert (await send(streams, "GET", CLAIMS, authorization="Bearer nope"))[0] == 401
            assert (await send(streams, "GET", CLAIMS, authorization=f"Bearer {site.server.token}"))[0] == 200
            streams[1].close()
            with pytest.raises(ssl.SSLError):
                await site.connect(ssl.create_default_context())

    asyncio.run(main())


def test_a_client_certificate_of_the_servers_authority_is_a_user(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, plain=False) as site:
            for signer, code in ((tmp_path / "tls", 403), (None, None)):
                context = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
                context.load_cert_chain(*client_certificate(tmp_path, signer, "system:node:n1", "system:nodes"))
                if code is None:
                    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                        await send(await site.connect(context), "GET", CLAIMS)
                    continue
                streams = await site.connect(context)
                pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
                foreign = {"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n2", "pool": pool}}
                path = "/apis/resource.k8s.io/v1/resourceslices"
                assert (await send(streams, "POST", path, json.dumps(foreign).encode()))[0] == code
                assert (await send(streams, "GET", f"{path}?fieldSelector=spec.nodeName%3Dn1"))[0] == 200
                streams[1].close()

    asyncio.run(main())


def test_plain_http_is_limited_to_loopback(tmp_path: Path) -> None:
    async def main() -> None:
        settings = ServerSettings(data_dir=tmp_path, bind="0.0.0.0", port=0, store="memory://", insecure_http=True)
        with pytest.raises(BadServerSettings, match=r"0\.0\.0\.0"):
            async with run_server(settings):
                pass

    asyncio.run(main())


@pytest.mark.parametrize(
    ("accepted", "headers"),
    [
        (True, {"host": "localhost:8642"}),
        (True, {"host": "localhost:8642", "origin": "http://localhost:8642"}),
        (False, {"host": "rebound.example.com:8642"}),
        (False, {"host": "localhost:8642", "origin": "http://example.com"}),
    ],
)
def test_plain_http_refuses_other_sites_with_and_without_a_token(
    tmp_path: Path, accepted: bool, headers: dict[str, str]
) -> None:
    async def main() -> None:
        async with running(tmp_path) as site:
            for credential in ({}, {"authorization": f"Bearer {site.server.token}"}):
                for method, path, code in (("GET", CLAIMS, 200), ("POST", CLAIMS, 201), ("GET", "/healthz", 200)):
                    sent = json.dumps(claim_document(f"c{len(credential)}")).encode() if method == "POST" else b""
                    answer, body = await send(await site.connect(), method, path, sent, **headers, **credential)
                    assert answer == (code if accepted else 403), body
                    assert accepted or b"plain http" in body

    asyncio.run(main())
