"""Tokens and client certificates, and the users that they prove."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dralloc.access.users import ADMINISTRATOR, User
from dralloc.apiserver.http.authentication import Authenticator, BadTokenFile, administrator_token, load_token_file

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


def test_a_certificate_authenticates_a_request_without_a_token() -> None:
    assert Authenticator({}).user_of(b"", User(name="node")) == User(name="node")


def test_a_token_file_names_users(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text('# who\nt1,ann,1,"devs,ops"\nt2,bob,2\n')
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
