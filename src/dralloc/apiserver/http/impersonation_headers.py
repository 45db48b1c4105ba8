"""Reads the headers `Impersonate-User`, `-Uid`, `-Group` and `-Extra-KEY`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from dralloc.access.users import User
from dralloc.cel.library.text_format import go_quoted
from dralloc.primitives.errors import BadRequest

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
