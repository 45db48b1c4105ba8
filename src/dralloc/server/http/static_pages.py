"""Static pages for browsers, served beside the API.

Files are held in memory under their exact paths, so that no request path leads to another file. They need no credential: a page reads
from the API with the permissions of its user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from dralloc.server.http.messages import TEXT, HttpResponse

HTML: Final = b"text/html"

Headers = tuple[tuple[bytes, bytes], ...]

# A page runs its own files only, connects to its own server only, and cannot be framed. Trusted types keep data from becoming markup.
SECURITY: Final[Headers] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        b"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    content_type: str


class StaticPages:
    """Files by their path below `home`, such as `/ui/`; the empty path is the first page."""

    def __init__(self, home: str, files: Mapping[str, StaticFile]) -> None:
        assert "" in files, "there is a first page"
        self._home = home
        self._root = home.rstrip("/")
        self._found = {f"{home}{place}": _found(file) for place, file in files.items()}

    def answer(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> HttpResponse | None:
        """The response to a request for a page; `None` for other requests."""
        if path == "/":
            # API clients get the list of API paths here; browsers are redirected.
            wants_page = method == "GET" and HTML in headers.get(b"accept", b"")
            return self._redirect() if wants_page else None
        if not path.startswith(self._root) or path[len(self._root) : len(self._home)] not in ("", "/"):
            return None
        if method not in ("GET", "HEAD"):
            return HttpResponse(405, b"405 method not allowed\n", TEXT, ((b"allow", b"GET, HEAD"), *SECURITY))
        if path == self._root:
            return self._redirect()
        found = self._found.get(path)
        if found is None:
            return HttpResponse(404, b"404 page not found\n", TEXT, SECURITY)
        etag, response = found
        if etag in headers.get(b"if-none-match", b""):
            return HttpResponse(304, b"", response.content_type, response.headers)
        return response

    def _redirect(self) -> HttpResponse:
        return HttpResponse(302, b"", TEXT, ((b"location", self._home.encode()), (b"vary", b"accept"), *SECURITY))


def _found(file: StaticFile) -> tuple[bytes, HttpResponse]:
    etag = f'"{sha256(file.content).hexdigest()[:32]}"'.encode()
    # Cached, but revalidated on each use, so that pages of a new server version show at once.
    headers = ((b"etag", etag), (b"cache-control", b"no-cache"), *SECURITY)
    return etag, HttpResponse(200, file.content, file.content_type, headers)
