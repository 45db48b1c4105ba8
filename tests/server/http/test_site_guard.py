"""The site guard: which hosts and origins a server without credentials accepts."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from dralloc.primitives.errors import Forbidden
from dralloc.server.http.site_guard import check_same_site


@pytest.mark.parametrize(
    ("accepted", "host", "origin"),
    [
        (True, b"localhost:8642", None),
        (True, b"LocalHost", None),
        (True, b"127.0.0.1:8642", None),
        (True, b"127.1.2.3", None),
        (True, b"[::1]:8642", None),
        (True, b"localhost:8642", b"http://localhost:8642"),
        (True, b"[::1]:8642", b"http://[::1]:8642"),
        (False, b"rebound.example.com:8642", None),
        (False, b"rebound.example.com:8642", b"http://rebound.example.com:8642"),
        (False, b"localhost.example.com", None),
        (False, b"page.localhost", None),
        (False, b"127.0.0.1.example.com", None),
        (False, b"192.0.2.1", None),
        (False, b"0.0.0.0", None),
        (False, b"", None),
        (False, b"[::1", None),
        (False, b"\xff", None),
        (False, b"localhost:8642", b"http://example.com"),
        (False, b"localhost:8642", b"http://localhost:3000"),
        (False, b"localhost:8642", b"http://127.0.0.1:8642"),
        (False, b"localhost:8642", b"https://localhost:8642"),
        (False, b"localhost:8642", b"null"),
        (False, b"localhost:8642", b""),
    ],
)
def test_only_loopback_hosts_and_pages_of_this_server_are_accepted(
    accepted: bool, host: bytes, origin: bytes | None
) -> None:
    headers = {b"host": host} if origin is None else {b"host": host, b"origin": origin}
    with nullcontext() if accepted else pytest.raises(Forbidden, match="refused over plain http"):
        check_same_site(headers)


def test_a_request_without_a_host_is_refused() -> None:
    with pytest.raises(Forbidden):
        check_same_site({})
