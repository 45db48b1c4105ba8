"""Headers that ask for impersonation."""

from __future__ import annotations

import pytest

from dralloc.primitives.errors import BadRequest
from dralloc.server.access.users import User
from dralloc.server.http.authentication import impersonation_headers, wanted_user


def test_headers_name_a_user_with_groups_and_extra() -> None:
    headers = impersonation_headers(
        [
            (b"accept", b"*/*"),
            (b"impersonate-user", b"bob"),
            (b"impersonate-user", b"carol"),
            (b"impersonate-group", b"devs"),
            (b"impersonate-group", b"ops"),
            (b"impersonate-uid", b"7"),
            (b"impersonate-extra-example.com%2fp", b"x"),
            (b"impersonate-extra-example.com%2fp", b"y"),
            (b"impersonate-extra-a%zz", b"z"),
        ]
    )
    extra = (("a%zz", ("z",)), ("example.com/p", ("x", "y")))
    assert wanted_user(headers) == User(name="bob", uid="7", groups=("devs", "ops"), extra=extra)


def test_an_empty_user_name_asks_for_nothing() -> None:
    assert wanted_user(((b"impersonate-user", b""),)) is None


@pytest.mark.parametrize("header", [b"impersonate-uid", b"impersonate-group", b"impersonate-extra-k"])
def test_other_headers_need_a_user_name(header: bytes) -> None:
    with pytest.raises(BadRequest, match="without impersonating a user name"):
        wanted_user(((b"impersonate-user", b""), (header, b"x")))
