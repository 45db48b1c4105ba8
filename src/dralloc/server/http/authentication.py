"""Authentication: who sends a request, proved by a client certificate or a bearer token.

Client certificates come first, then static tokens, then those of service accounts. A request without a
credential gets 401. In plain-http mode it gets the administrator's identity instead, because kubectl sends no token over plain http. A
wrong token is refused in every mode.
"""

from __future__ import annotations

import csv
import logging
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote

from msgspec import Struct

from dralloc.atomic_files import write_private
from dralloc.cel.library.text_format import go_quoted
from dralloc.primitives.errors import BadRequest
from dralloc.server.access.users import User, authenticated

ADMINISTRATOR_TOKEN_FILE: Final = "admin.token"
KNOWN_MAX: Final = 1024
# A changed token file counts after at most this time.
FILE_CHECK_S: Final = 1.0
_TOKEN: Final = re.compile(rb"[!-~]+")

_logger = logging.getLogger(__name__)


class BadTokenFile(ValueError):
    """A token file that cannot be read as `token,user,uid,"group,group"` lines."""


class VerifiedToken(Struct, frozen=True):
    """The user that a token proves, and those of the asked audiences that it is meant for."""

    user: User
    audiences: tuple[str, ...] = ()


class TokenVerifier(Protocol):
    """Knows a kind of tokens that carry their own proof, such as signed ones."""

    async def verify(self, token: str, audiences: Sequence[str] = ()) -> VerifiedToken | None:
        """What the token proves to one of the audiences, by default to this server; `None` if it proves nothing."""
        ...


class TokenFile:
    """The users of a static token file, read again when it changes. A broken new file is logged, and changes nothing."""

    def __init__(self, path: Path, *, check_every_s: float = FILE_CHECK_S) -> None:
        self._path = path
        self._check_every_s = check_every_s
        self._checked_at = time.monotonic()
        self._state = _state_of(path)
        self.users: Mapping[str, User] = load_token_file(path)

    def changed(self) -> bool:
        """Read the file if it has changed; true if it has new users."""
        now = time.monotonic()
        if now - self._checked_at < self._check_every_s:
            return False
        self._checked_at = now
        state = _state_of(self._path)
        if state == self._state:
            return False
        self._state = state
        try:
            self.users = load_token_file(self._path)
        except BadTokenFile as error:
            _logger.error("the token file is unusable, so its earlier users stay: %s", error)
            return False
        _logger.warning("the token file %s has changed: %d users", self._path, len(self.users))
        return True


class Authenticator:
    """Finds the user that a credential proves."""

    def __init__(
        self,
        tokens: Mapping[str, User],
        *,
        without_credential: User | None = None,
        token_file: TokenFile | None = None,
        verifier: TokenVerifier | None = None,
        # Names of this server, for which static tokens are meant.
        audiences: Sequence[str] = (),
    ) -> None:
        self._audiences = tuple(audiences)
        self._tokens = tokens
        self._token_file = token_file
        self._verifier = verifier
        self._without_credential = without_credential
        # Looked up by digest, so that the time of a lookup says nothing about the tokens.
        self._users: dict[bytes, User] = {}
        # Caches accepted headers: digests are slow, and a client sends the same header with every request.
        self._known: dict[bytes, User] = {}
        self._learn()

    @property
    def needs_credential(self) -> bool:
        return self._without_credential is None

    async def verified_user(self, authorization: bytes) -> User | None:
        """The user of a token that the verifier knows."""
        if (token := _bearer(authorization)) is None:
            return None
        verified = await self._verified(token, ())
        return verified.user if verified is not None else None

    def user_of(self, authorization: bytes, certificate_subject: User | None = None) -> User | None:
        """The user of a certificate or a static token; other tokens are known to the verifier only."""
        if certificate_subject is not None:
            return certificate_subject
        if not authorization:
            return self._without_credential
        if self._token_file is not None and self._token_file.changed():
            self._learn()
        if (known := self._known.get(authorization)) is not None:
            return known
        if (token := _bearer(authorization)) is None:
            return None
        user = self._users.get(_digest(token.encode("latin-1")))
        if user is not None and len(self._known) < KNOWN_MAX:
            self._known[authorization] = user
        return user

    async def review(self, token: str, audiences: Sequence[str] = ()) -> VerifiedToken | None:
        """What a token proves that someone else received. Static tokens are for this server only."""
        meant = tuple(audience for audience in self._audiences if not audiences or audience in audiences)
        if (meant or not audiences) and (user := self.user_of(b"Bearer " + token.encode("utf-8"))) is not None:
            return VerifiedToken(user, meant)
        return await self._verified(token, audiences)

    async def _verified(self, token: str, audiences: Sequence[str]) -> VerifiedToken | None:
        return await self._verifier.verify(token, audiences) if self._verifier is not None else None

    def _learn(self) -> None:
        tokens = {**self._tokens, **(self._token_file.users if self._token_file is not None else {})}
        self._users = {_digest(token.encode()): user for token, user in tokens.items()}
        self._known = {}


def load_token_file(path: Path) -> dict[str, User]:
    """The users of a static token file, in the format that kube-apiserver reads."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadTokenFile(f"{path}: {error}") from None
    users: dict[str, User] = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row or row[0].lstrip().startswith("#"):
            continue
        if len(row) < 3 or not row[0].strip() or not row[1].strip():
            raise BadTokenFile(f'{path}, line {number}: expected token,user,uid[,"group,group"]')
        token, name, uid = (part.strip() for part in row[:3])
        groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
        users[token] = authenticated(User(name=name, uid=uid, groups=groups))
    return users


def administrator_token(directory: Path) -> str:
    """The administrator's token of this data directory, created at the first start."""
    return kept_token(directory / ADMINISTRATOR_TOKEN_FILE)


def kept_token(path: Path) -> str:
    """The token in the file, which is created with a random one if it does not exist. Raises BadTokenFile."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    token = path.read_bytes().strip()
    if not _TOKEN.fullmatch(token):
        # A write that a full disk or a power failure cut off leaves an empty file, and no token must not be one.
        raise BadTokenFile(f"{path} has no token, or more than one: delete the file for a new token")
    return token.decode("ascii")


def _bearer(authorization: bytes) -> str | None:
    """The token of an `Authorization: Bearer` header."""
    token = authorization[7:].strip().decode("latin-1") if authorization[:7].lower() == b"bearer " else ""
    return token or None


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """What changes when the file is written or replaced."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()


# --- Impersonation headers ------------------------------------------------------------------------------------------
# Reads the headers `Impersonate-User`, `-Uid`, `-Group` and `-Extra-KEY`.


PREFIX: Final = b"impersonate-"
_EXTRA: Final = b"impersonate-extra-"
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")

Headers = tuple[tuple[bytes, bytes], ...]


def impersonation_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Those of the headers that ask for impersonation; names are lower case."""
    # Every request is looked at: slices are faster than `startswith`.
    return tuple([header for header in headers if header[0][:12] == PREFIX])


def wanted_user(headers: Headers) -> User | None:
    """The user that the headers ask for, exactly as they say; `None` if they name none."""
    name = _first(headers, b"impersonate-user")
    uid = _first(headers, b"impersonate-uid")
    groups = tuple(_text(value) for header, value in headers if header == b"impersonate-group")
    extra: dict[str, list[str]] = {}
    for header, value in headers:
        if header.startswith(_EXTRA):
            key = _unescaped(_text(header.removeprefix(_EXTRA)).lower())
            extra.setdefault(key, []).append(_text(value))
    by_key = tuple((key, tuple(values)) for key, values in sorted(extra.items()))
    wanted = User(name=name, uid=uid, groups=groups, extra=by_key)
    if name:
        return wanted
    if uid or groups or extra:
        raise BadRequest(f"requested {_described(wanted)} without impersonating a user name")
    return None


def _first(headers: Headers, name: bytes) -> str:
    return next((_text(value) for header, value in headers if header == name), "")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _unescaped(key: str) -> str:
    return key if _BAD_ESCAPE.search(key) else unquote(key)


def _described(user: User) -> str:
    """The user in the words of Kubernetes, which prints its Go value."""
    extra = ", ".join(f"{go_quoted(key)}:{_strings(values)}" for key, values in user.extra)
    printed = f"map[string][]string{{{extra}}}" if extra else "map[string][]string(nil)"
    groups = _strings(user.groups)
    return f'&user.DefaultInfo{{Name:"", UID:{go_quoted(user.uid)}, Groups:{groups}, Extra:{printed}}}'


def _strings(texts: tuple[str, ...]) -> str:
    return f"[]string{{{', '.join(map(go_quoted, texts))}}}" if texts else "[]string(nil)"
