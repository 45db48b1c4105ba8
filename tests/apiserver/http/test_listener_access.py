"""Whom a listener lets in: tokens, client certificates, loopback, other sites."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dralloc.apiserver.credentials.certificates import (
    retire_authorities,
    rotate_authority,
    rotate_server_certificate,
)
from dralloc.apiserver.server_process import BadServerSettings, ServerSettings, run_server
from tests.apiserver.http.listener_site import Site, Streams, closed, running, send
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


@pytest.mark.slow
def test_a_retired_authority_ends_the_connections_of_its_clients(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, plain=False) as site:
            directory = tmp_path / "tls"
            token = f"Bearer {site.server.token}"
            trusting = ssl.create_default_context(cafile=str(directory / "ca.crt"))
            by_token = await site.connect(trusting)
            assert (await send(by_token, "GET", CLAIMS, authorization=token))[0] == 200
            trusting.load_cert_chain(*client_certificate(tmp_path, directory, "system:node:n1", "system:nodes"))
            by_certificate = await site.connect(trusting)
            assert (await send(by_certificate, "GET", "/version"))[0] == 200
            now = datetime.now(UTC)
            rotate_authority(directory, now)
            rotate_server_certificate(directory, now)
            newer = ssl.create_default_context(cafile=str(directory / "ca.crt"))
            newer.load_cert_chain(*client_certificate(tmp_path, directory, "system:node:n2", "system:nodes"))
            with_new_certificate = await until_answered(site, newer)
            assert retire_authorities(directory, datetime.now(UTC)) == 1
            await closed(by_certificate[0])
            assert (await send(by_token, "GET", CLAIMS, authorization=token))[0] == 200
            assert (await send(with_new_certificate, "GET", "/version"))[0] == 200

    asyncio.run(main())


async def until_answered(site: Site, context: ssl.SSLContext) -> Streams:
    """A connection with an answer, when the server has read its new certificates; the test's time limit bounds this."""
    while True:
        with suppress(ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            streams = await site.connect(context)
            await send(streams, "GET", "/version")
            return streams


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
