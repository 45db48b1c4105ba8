"""URLs, parsed as Kubernetes does.

Python's parser is more lenient and keeps less, so this follows Go's rules: RFC 3986 with its deviations. Everything
works on bytes, because an escape stands for a byte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv6Address
from typing import ClassVar, Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Library, text_cost
from dralloc.cel.values import Opaque, TypeValue

LIBRARY: Final = Library()
define: Final = LIBRARY.define


class UrlError(ValueError):
    """A text that is not a URL."""


@dataclass(frozen=True, slots=True)
class Url(Opaque):
    """The parts of a URL. `path` is escaped as needed, `host` includes the port."""

    type_value: ClassVar[TypeValue] = TypeValue("kubernetes.URL")
    scheme: str = ""
    opaque: str = ""
    user: tuple[bytes, ...] = ()
    host: str = ""
    path: str = ""
    query: str = ""
    fragment: bytes = b""

    def split_host(self) -> tuple[str, str]:
        """Returns name (without the brackets of an IPv6 address) and port."""
        name, colon, port = self.host.rpartition(":")
        if not colon or not _is_port(colon + port):
            name, port = self.host, ""
        if name.startswith("[") and name.endswith("]"):
            name = name[1:-1]
        return name, port


# --- Escapes -------------------------------------------------------------------------------------------------


class _Part(Enum):
    """The part of a URL that a text is in: the characters allowed unescaped differ."""

    PATH = auto()
    USER = auto()
    HOST = auto()
    ZONE = auto()
    QUERY = auto()
    FRAGMENT = auto()


_UNRESERVED: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
_IN_HOST: Final = _UNRESERVED | frozenset(b"!$&'()*+,;=:[]<>\"")
_IN_PATH: Final = _UNRESERVED | frozenset(b"$&+,/:;=@")
# Characters that an already escaped path may also contain: it is then kept unchanged.
_KEPT_IN_PATH: Final = _IN_PATH | frozenset(b"!'()*[]%")
_IN_USER: Final = _UNRESERVED | frozenset(b":!$&'()*+,;=%@")
_HEX: Final = re.compile(rb"[0-9a-fA-F]{2}")


def _unescape(data: bytes, part: _Part) -> bytes:
    unescaped, position = bytearray(), 0
    while position < len(data):
        byte = data[position]
        if byte == ord("%"):
            unescaped.append(_unescape_one(data[position : position + 3], part))
            position += 3
            continue
        if part in (_Part.HOST, _Part.ZONE) and byte < 0x80 and byte not in _IN_HOST:
            raise UrlError(f"invalid character {chr(byte)!r} in host name")
        unescaped.append(ord(" ") if byte == ord("+") and part is _Part.QUERY else byte)
        position += 1
    return bytes(unescaped)


def _unescape_one(escape: bytes, part: _Part) -> int:
    if not _HEX.fullmatch(escape[1:]):
        raise UrlError(f"invalid URL escape {escape.decode(errors='replace')!r}")
    byte = int(escape[1:], 16)
    # In a host only non-ASCII bytes may be escaped, and the percent sign that starts a zone.
    if part is _Part.HOST and byte < 0x80 and escape != b"%25":
        raise UrlError(f"invalid URL escape {escape.decode()!r}")
    if part is _Part.ZONE and escape != b"%25" and byte != ord(" ") and byte not in _IN_HOST:
        raise UrlError(f"invalid URL escape {escape.decode()!r}")
    return byte


def _escape_path(data: bytes) -> str:
    return "".join([chr(byte) if byte in _IN_PATH else f"%{byte:02X}" for byte in data])


def _read_path(raw: bytes) -> str:
    """Returns the path as written if it is correctly escaped, else escaped again."""
    path = _unescape(raw, _Part.PATH)
    if all(byte in _KEPT_IN_PATH for byte in raw):
        return raw.decode()
    return _escape_path(path)


# --- Parsing -------------------------------------------------------------------------------------------------

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def parse_url(text: str, *, is_request: bool) -> Url:
    """Parses an absolute URL or an absolute path. In a request `#` has no special meaning."""
    if _CONTROL.search(text):
        raise UrlError("invalid control character in URL")
    if is_request and not text:
        raise UrlError("empty url")
    if text == "*":
        return Url(path="*")
    rest, fragment = text, ""
    if not is_request:
        rest, _, fragment = text.partition("#")
    scheme, rest = _split_scheme(rest)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme=scheme, opaque=rest, query=query, fragment=_unescape(_bytes(fragment), _Part.FRAGMENT))
        raise UrlError("invalid URI for request")
    authority = ""
    if rest.startswith("//") and (scheme or (not is_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
    user, host = _read_authority(authority)
    return Url(
        scheme=scheme,
        user=user,
        host=host,
        path=_read_path(_bytes(rest)),
        query=query,
        fragment=_unescape(_bytes(fragment), _Part.FRAGMENT),
    )


def _split_scheme(text: str) -> tuple[str, str]:
    if text.startswith(":"):
        raise UrlError("missing protocol scheme")
    match = _SCHEME.match(text)
    return (match[0][:-1].lower(), text[match.end() :]) if match else ("", text)


def _read_authority(authority: str) -> tuple[tuple[bytes, ...], str]:
    user_text, at, host = authority.rpartition("@")
    user: tuple[bytes, ...] = ()
    if at:
        if not all(byte in _IN_USER for byte in _bytes(user_text)):
            raise UrlError("invalid userinfo")
        user = tuple(_unescape(_bytes(part), _Part.USER) for part in user_text.split(":", 1))
    return user, _read_host(host)


def _read_host(host: str) -> str:
    if "[" in host:
        return _read_bracketed_host(host)
    name, colon, port = host.rpartition(":")
    if colon and (not _is_port(colon + port) or ":" in name):
        raise UrlError(f"invalid port {colon + port!r} after host")
    return _unescape(_bytes(host), _Part.HOST).decode(errors="replace")


def _read_bracketed_host(host: str) -> str:
    before, _, rest = host.rpartition("[")
    literal, bracket, port = rest.rpartition("]")
    if not bracket:
        raise UrlError("missing ']' in host")
    if not _is_port(port):
        raise UrlError(f"invalid port {port!r} after host")
    name, escape, zone = literal.partition("%25")
    address = _unescape(_bytes(name), _Part.HOST).decode(errors="replace")
    try:
        IPv6Address(address)
    except ValueError:
        raise UrlError(f"invalid host {literal!r}") from None
    if before:
        raise UrlError(f"invalid host {host!r}")
    return f"[{address}{_unescape(_bytes(escape + zone), _Part.ZONE).decode(errors='replace')}]{port}"


def _is_port(text: str) -> bool:
    """True for an empty text, or a colon and optional digits."""
    return not text or (text[0] == ":" and (text[1:].isdecimal() or text == ":") and text.isascii())


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# --- Functions -----------------------------------------------------------------------------------------------


@define("url", str, cost=text_cost)
def url(text: str) -> Url:
    try:
        parse_url(text, is_request=True)
        return parse_url(text, is_request=False)
    except UrlError as fault:
        raise CelEvaluationError(f"URL parse error during conversion from string: parse {text!r}: {fault}") from None


@define("isURL", str)
def is_url(text: str) -> bool:
    try:
        parse_url(text, is_request=True)
    except UrlError:
        return False
    return True


define("getScheme", Url)(lambda operand: operand.scheme)
define("getHost", Url)(lambda operand: operand.host)
define("getHostname", Url)(lambda operand: operand.split_host()[0])
define("getPort", Url)(lambda operand: operand.split_host()[1])
define("getEscapedPath", Url)(lambda operand: operand.path)


@define("getQuery", Url)
def query(operand: Url) -> dict[str, list[str]]:
    """Returns all values of each key. Parts that are badly escaped or contain `;` are left out."""
    values: dict[str, list[str]] = {}
    for pair in operand.query.split("&"):
        if not pair or ";" in pair:
            continue
        key, _, value = pair.partition("=")
        try:
            name, text = (_unescape(_bytes(part), _Part.QUERY).decode(errors="replace") for part in (key, value))
        except UrlError:
            continue
        values.setdefault(name, []).append(text)
    return values
