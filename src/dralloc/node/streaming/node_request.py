"""Requests to the streaming server: the head of an HTTP request, and plain responses."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit


class BadNodeRequest(ValueError):
    """The request is refused; the message is for its user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A request without a body. Names of headers are lower case."""

    method: str
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def header(self, name: str) -> str:
        return next(iter(self.all(name)), "")

    def parameters(self, name: str) -> list[str]:
        return [value for key, value in self.query if key == name]

    def parameter(self, name: str) -> str:
        return next(iter(self.parameters(name)), "")

    def is_set(self, name: str) -> bool:
        return self.parameter(name) in ("1", "true")

    @property
    def upgrade(self) -> str:
        """The protocol that the client wants to switch to, in lower case."""
        return self.header("upgrade").lower()


def parse_request(head: bytes) -> NodeRequest:
    """The request with this head; raises BadNodeRequest."""
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadNodeRequest(400, "not an HTTP/1 request")
    url = urlsplit(words[1])
    headers = [line.partition(":") for line in lines]
    return NodeRequest(
        words[0],
        tuple(unquote(part) for part in url.path.strip("/").split("/")),
        tuple(parse_qsl(url.query, keep_blank_values=True)),
        tuple((name.strip().lower(), value.strip()) for name, _, value in headers),
    )


def response_head(status: int, content_type: str = "text/plain; charset=utf-8") -> bytes:
    """The head of a response whose body ends with the connection."""
    phrase = HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n".encode()
