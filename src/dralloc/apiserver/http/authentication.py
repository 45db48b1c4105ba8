"""Authentication: bearer tokens, read once at start, and client certificates that the server's own CA signed.

A request without a credential gets 401, except on the paths in `OPEN_PATHS`. In plain-http mode it gets the administrator's
identity instead, because kubectl sends no token over plain http. A wrong token is refused in every mode.
"""

from __future__ import annotations

import csv
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from dralloc.access.users import AUTHENTICATED, User
from dralloc.apiserver.credentials.private_file import write_private

KNOWN_MAX: Final = 1024

# Open to requests without a credential: load balancers and version probes have none.
OPEN_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})


class BadTokenFile(ValueError):
    """A token file that cannot be read as `token,user,uid,"group,group"` lines."""


class Authenticator:
    """Finds the user that a credential proves."""

    def __init__(self, tokens: Mapping[str, User], *, without_credential: User | None = None) -> None:
        # Looked up by digest, so that the time of a lookup says nothing about the tokens.
        self._users = {_digest(token.encode()): user for token, user in tokens.items()}
        # Caches accepted headers: digests are slow, and a client sends the same header with every request.
        self._known: dict[bytes, User] = {}
        self._without_credential = without_credential

    def user_of(self, authorization: bytes, certificate_subject: User | None = None) -> User | None:
        """The user that the request's credential proves, or `None` if the request must be refused."""
        if authorization:
            if (known := self._known.get(authorization)) is not None:
                return known
            if authorization[:7].lower() != b"bearer ":
                return None
            user = self._users.get(_digest(authorization[7:].strip()))
            if user is not None and len(self._known) < KNOWN_MAX:
                self._known[authorization] = user
            return user
        return certificate_subject or self._without_credential


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
        users[token] = User(name=name, uid=uid, groups=(*groups, AUTHENTICATED))
    return users


def administrator_token(directory: Path) -> str:
    """The administrator's token of this data directory, created at the first start."""
    path = directory / "admin.token"
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()
