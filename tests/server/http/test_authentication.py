"""Tokens and client certificates, and the users that they prove."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from dralloc.server.access.users import ADMINISTRATOR, User
from dralloc.server.http.authentication import (
    Authenticator,
    BadTokenFile,
    TokenFile,
    VerifiedToken,
    administrator_token,
    load_token_file,
)

ANN = User(name="ann", groups=("devs",))


@pytest.mark.parametrize(
    ("authorization", "want"),
    [
        (b"Bearer secret", ANN),
        (b"bearer  secret ", ANN),
        (b"Bearer wrong", None),
        (b"Basic secret", None),
        (b"Bearer", None),
        (b"", None),
    ],
)
def test_bearer_tokens(authorization: bytes, want: User | None) -> None:
    assert Authenticator({"secret": ANN}).user_of(authorization) == want


def test_plain_http_mode_accepts_no_credential_but_refuses_a_wrong_token() -> None:
    authenticator = Authenticator({"secret": ANN}, without_credential=ADMINISTRATOR)
    assert authenticator.user_of(b"") == ADMINISTRATOR
    assert authenticator.user_of(b"Bearer wrong") is None


def test_a_certificate_comes_before_a_token() -> None:
    authenticator = Authenticator({"secret": ANN})
    assert authenticator.user_of(b"", User(name="node")) == User(name="node")
    assert authenticator.user_of(b"Bearer secret", User(name="node")) == User(name="node")


def test_a_token_that_is_not_static_is_known_to_the_verifier() -> None:
    class Verifier:
        async def verify(self, token: str, audiences: Sequence[str] = ()) -> VerifiedToken | None:
            return VerifiedToken(User(name=token)) if token.startswith("signed") and not audiences else None

    authenticator = Authenticator({"secret": ANN}, verifier=Verifier())
    assert asyncio.run(authenticator.verified_user(b"Bearer signed-1")) == User(name="signed-1")
    assert authenticator.user_of(b"Bearer secret") == ANN
    assert asyncio.run(authenticator.verified_user(b"Bearer other")) is None
    assert asyncio.run(authenticator.verified_user(b"Basic signed")) is None


def test_a_static_token_is_meant_for_this_server_only() -> None:
    authenticator = Authenticator({"secret": ANN}, audiences=("here", "api"))
    assert asyncio.run(authenticator.review("secret")) == VerifiedToken(ANN, ("here", "api"))
    assert asyncio.run(authenticator.review("secret", ("api", "x"))) == VerifiedToken(ANN, ("api",))
    assert asyncio.run(authenticator.review("secret", ("elsewhere",))) is None
    assert asyncio.run(authenticator.review("wrong")) is None


def test_a_changed_token_file_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("t1,ann,1\n")
    authenticator = Authenticator({}, token_file=TokenFile(path, check_every_s=0))
    assert authenticator.user_of(b"Bearer t1") is not None
    replaced = tmp_path / "new"
    replaced.write_text("t2,bob,2\n")
    replaced.replace(path)
    assert authenticator.user_of(b"Bearer t1") is None
    assert authenticator.user_of(b"Bearer t2") is not None


def test_a_broken_token_file_keeps_the_earlier_users(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens"
    path.write_text("t1,ann,1\n")
    authenticator = Authenticator({}, token_file=TokenFile(path, check_every_s=0))
    path.write_text("t1,ann,1\nonly-a-token\n")
    assert authenticator.user_of(b"Bearer t1") is not None
    assert "line 2" in caplog.text
    assert "only-a-token" not in caplog.text
    path.unlink()
    assert authenticator.user_of(b"Bearer t1") is not None
    path.write_text("t3,cem,3\n")
    assert authenticator.user_of(b"Bearer t1") is None
    assert authenticator.user_of(b"Bearer t3") is not None


def test_a_token_file_names_users(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text('# who\nt1,ann,1,"devs,ops,system:authenticated"\nt2,bob,2\n')
    users = load_token_file(path)
    assert users["t1"] == User(name="ann", uid="1", groups=("devs", "ops", "system:authenticated"))
    assert users["t2"].groups == ("system:authenticated",)


@pytest.mark.parametrize("line", ["only-a-token", ",ann,1", "token,,1"])
def test_a_bad_token_file_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"t1,ann,1\n{line}\n")
    with pytest.raises(BadTokenFile, match="line 2"):
        load_token_file(path)


def test_the_administrator_token_is_created_once(tmp_path: Path) -> None:
    token = administrator_token(tmp_path / "data")
    assert len(token) >= 32
    assert administrator_token(tmp_path / "data") == token
    assert stat.S_IMODE((tmp_path / "data" / "admin.token").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"\n", b" \t\n", b"one\ntwo", b"one two", b"\xff\xfe", "ä".encode()])
def test_a_token_file_that_was_cut_off_or_edited_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "admin.token").write_bytes(content)
    with pytest.raises(BadTokenFile, match=r"admin\.token.*delete the file"):
        administrator_token(tmp_path)


@pytest.mark.parametrize("header", [b"Bearer ", b"Bearer", b"bearer \t ", b""])
def test_a_header_without_a_token_is_nobody(header: bytes) -> None:
    assert Authenticator({"": ADMINISTRATOR}).user_of(header) is None
