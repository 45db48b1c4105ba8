"""Refuses cross-site requests to a server that accepts requests without credentials.

Such a server listens on loopback only, but a browser on the same machine can reach it for any site. A site can send requests from its
own origin, or resolve its own name to 127.0.0.1 (DNS rebinding) so that the browser takes the server for a part of the site.
Browsers report both: the requested name in `Host`, the origin of the page in `Origin`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from dralloc.primitives.errors import Forbidden


def check_same_site(headers: Mapping[bytes, bytes]) -> None:
    """Raises `Forbidden` unless the request names a loopback host, and comes from no page or from a page of this server."""
    host, origin = headers.get(b"host", b""), headers.get(b"origin")
    if not _is_loopback_host(host):
        raise Forbidden(f"host {_text(host)} is refused over plain http: use localhost or a loopback address")
    if origin is not None and origin != b"http://" + host:
        raise Forbidden(f"cross-site requests are refused over plain http: origin {_text(origin)}, host {_text(host)}")


def is_loopback(address: str) -> bool:
    """True if only this machine can reach a listener on the address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


# The same few hosts come with every request.
@lru_cache(maxsize=64)
def _is_loopback_host(host: bytes) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host.decode('ascii')}").hostname or "")
    except ValueError:
        return False


def _text(header: bytes) -> str:
    return repr(header.decode("latin-1"))
