"""Requests that a web site makes a browser send to a server that trusts whoever reaches it.

A server without tokens listens on loopback only. But a browser on the same machine reaches it on behalf of every site that it
shows: a site can send a form there, or let its own name lead to loopback and then read, too. Browsers say for which site they ask,
and by which name they found us.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache


def is_from_another_site(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the request is made for somebody else's page, or reached us by a name that is not this machine's."""
    host, origin = headers.get(b"host", b""), headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != host:
        return True
    return not _is_this_machine(host)


@lru_cache(maxsize=64)
def _is_this_machine(host: bytes) -> bool:
    """An address cannot be made to lead elsewhere, and neither can `localhost`; any other name can."""
    text = host.decode("latin-1").lower()
    name = text.rpartition("]")[0].removeprefix("[") if text.startswith("[") else text.partition(":")[0]
    if not name or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
