"""Keeps the pages of other web sites away from a server that asks for no password.

Whoever runs a browser on this machine reaches loopback, and so do the pages that it shows. A page may send requests there from
its own origin, or have its own name lead to 127.0.0.1 (DNS rebinding) so that browsers take the server for a part of it.
Browsers tell both: the name that was asked for in `Host`, the page that asks in `Origin`.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from dralloc.apiserver.http.application import ApiApplication, Receive, Scope, Send
from dralloc.apiserver.http.statuses import status_of, status_response
from dralloc.primitives.errors import Forbidden


class LocalOnly:
    """The application, for those who call it by a name of loopback, and for its own pages."""

    def __init__(self, application: ApiApplication) -> None:
        self._application = application

    def end_streams(self) -> None:
        self._application.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host, origin = b"", b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if not _is_local(host):
            await _refuse(
                send, f"the host {_text(host)} is no name of loopback, and others are not served over plain http"
            )
        elif origin and origin.lower() != b"http://" + host.lower():
            await _refuse(send, f"pages of {_text(origin)} are not served over plain http")
        else:
            await self._application(scope, receive, send)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@lru_cache(maxsize=64)
def _is_local(host: bytes) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host.decode('ascii')}").hostname or "")
    except ValueError:
        return False


def _text(header: bytes) -> str:
    return repr(header.decode("latin-1"))


async def _refuse(send: Send, message: str) -> None:
    answer = status_response(status_of(Forbidden(message)))
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", b"%d" % len(answer.body)),
        # Whatever else was sent is not read.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
