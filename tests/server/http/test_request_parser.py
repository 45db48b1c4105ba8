"""Requests as the server reads them: a table of what RFC 9112 says, and random bytes compared with another parser."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import h11
import pytest

from dralloc.server.http.request_parser import NotARequest, RequestHead, RequestParser

HEAD_BYTES_MAX = 4096
HOST = b"host: localhost\r\n"
BODY = b"GET /inner HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"5\r\nhello\r\n1;a=b\r\n!\r\n"
LENGTH = b"content-length: %d\r\n" % len(BODY)


@dataclass
class Requests:
    """What a connection is told."""

    heads: list[RequestHead] = field(default_factory=list)
    # The bodies of complete requests.
    bodies: list[bytes] = field(default_factory=list)
    body: bytes = b""
    is_last: bool = False

    def begin_request(self, head: RequestHead) -> None:
        assert not self.is_last
        self.heads.append(head)
        self.body = b""

    def feed_body(self, piece: bytes) -> None:
        self.body += piece

    def end_request(self, *, is_last: bool) -> None:
        self.bodies.append(self.body)
        self.is_last = is_last


def read(*pieces: bytes) -> tuple[Requests, bytes]:
    """The requests in the pieces, and the status line of the refusal."""
    requests = Requests()
    parser = RequestParser(requests, HEAD_BYTES_MAX)
    try:
        for piece in pieces:
            parser.feed(piece)
    except NotARequest as error:
        return requests, error.refusal.wire.partition(b"\r\n")[0]
    return requests, b""


def get(*headers: bytes, target: bytes = b"/x", version: bytes = b"HTTP/1.1", host: bytes = HOST) -> bytes:
    return b"GET %b %b\r\n%b%b\r\n" % (target, version, host, b"".join(headers))


def post(*headers: bytes, body: bytes = b"", version: bytes = b"HTTP/1.1") -> bytes:
    return b"POST /x %b\r\n%b%b\r\n%b" % (version, HOST, b"".join(headers), body)


@pytest.mark.parametrize(
    ("what", "sent", "status"),
    [
        ("no Host", get(host=b""), b"400"),
        ("two Hosts", get(HOST), b"400"),
        ("two lengths", post(LENGTH, b"content-length: 3\r\n", body=BODY), b"400"),
        ("a length and chunks", post(LENGTH, CHUNKED, body=BODY), b"400"),
        ("chunks and a length", post(CHUNKED, LENGTH, body=BODY), b"400"),
        ("a length with a sign", post(b"content-length: +3\r\n", body=BODY), b"400"),
        ("a space before the colon", post(b"content-length : 3\r\n", body=BODY), b"400"),
        ("a folded header", get(b"a: b\r\n c\r\n"), b"400"),
        ("lines without carriage return", b"GET /x HTTP/1.1\nhost: localhost\n\n", b"400"),
        ("another coding before the chunks", post(b"transfer-encoding: gzip, chunked\r\n", body=CHUNKS), b"501"),
        ("chunks in HTTP/1.0", post(CHUNKED, body=CHUNKS, version=b"HTTP/1.0"), b"400"),
        ("HTTP/2.0", get(version=b"HTTP/2.0"), b"505"),
        ("a tunnel", b"CONNECT localhost:1 HTTP/1.1\r\n" + HOST + b"\r\n", b"400"),
        ("large headers that arrive at once", get(b"a: %b\r\n" % (b"b" * HEAD_BYTES_MAX)), b"431"),
        ("many small headers", get(b"a:b\r\n" * HEAD_BYTES_MAX), b"431"),
        ("a long URL", get(target=b"/" + b"a" * HEAD_BYTES_MAX), b"431"),
        ("large trailers", post(CHUNKED, body=b"0\r\n" + b"a: b\r\n" * HEAD_BYTES_MAX), b"431"),
        ("a chunk with a wrong end", post(CHUNKED, body=b"5\r\nhelloX\r\n0\r\n\r\n"), b"400"),
        ("a chunk with a prefix", post(CHUNKED, body=b"0x5\r\nhello\r\n0\r\n\r\n"), b"400"),
        ("a length in trailers", post(CHUNKED, body=CHUNKS + b"0\r\ncontent-length: 3\r\n\r\n"), b"400"),
    ],
)
def test_what_is_refused(what: str, sent: bytes, status: bytes) -> None:
    requests, refusal = read(sent)
    assert refusal.startswith(b"HTTP/1.1 " + status), what
    assert not requests.bodies, what
    by_byte, refused = read(*(bytes((byte,)) for byte in sent))
    assert (by_byte.bodies, refused) == ([], refusal), what


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((b"GET /x HTTP/1.1\r\na: ", *(b"b" * 1000,) * 6), id="header"),
        pytest.param((b"GET /", *(b"b" * 1000,) * 6), id="URL"),
        pytest.param((post(CHUNKED), b"1;", *(b"b" * 1000,) * 6), id="chunk"),
        pytest.param((post(CHUNKED), b"0\r\na: ", *(b"b" * 1000,) * 6), id="trailer"),
        pytest.param((b"\r\n" * 500,) * 6, id="empty lines"),
    ],
)
def test_what_never_ends_is_refused(pieces: tuple[bytes, ...]) -> None:
    assert read(*pieces)[1].startswith(b"HTTP/1.1 431 ")


def test_trailers_are_no_headers() -> None:
    trailers = b"impersonate-user: root\r\nauthorization: Bearer x\r\n"
    requests, refusal = read(post(CHUNKED, body=CHUNKS + b"0\r\n" + trailers + b"\r\n") + get())
    assert not refusal
    assert [len(head.headers) for head in requests.heads] == [2, 1]
    assert requests.bodies == [b"hello!", b""]


def test_a_trailer_that_ends_the_connection_does() -> None:
    requests, _ = read(post(CHUNKED, body=b"0\r\nconnection: close\r\n\r\n") + get())
    assert requests.is_last
    assert requests.bodies == [b""]


def test_a_head_in_pieces_after_a_large_body_is_not_too_large() -> None:
    large = post(b"content-length: 9000\r\n")
    requests, refusal = read(large, *(b" " * 3000,) * 3, get()[:9], get()[9:])
    assert not refusal
    assert len(requests.bodies) == 2


@pytest.mark.parametrize("upgrade", [b"h2c", b"h2c, x", b"TLS/1.0", b"websocket", b"SPDY/3.1"])
def test_a_request_for_an_upgrade_is_an_ordinary_request(upgrade: bytes) -> None:
    headers = (b"connection: upgrade\r\n", b"upgrade: %b\r\n" % upgrade, LENGTH)
    requests, refusal = read(post(*headers, body=BODY) + get())
    assert not refusal
    assert requests.bodies == [BODY, b""]
    assert all(name != b"upgrade" for name, _ in requests.heads[0].headers)


def test_an_absolute_target() -> None:
    requests, _ = read(get(target=b"http://localhost") + get(target=b"http://localhost/a?b=c"))
    assert [(head.path, head.query) for head in requests.heads] == [("/", b""), ("/a", b"b=c")]


FRAGMENTS = (
    b"GET /a HTTP/1.1\r\n", b"POST /a HTTP/1.1\r\n", b"PUT /b HTTP/1.1\r\n", b"HEAD / HTTP/1.1\r\n", b"GET http://h/a HTTP/1.1\r\n",
    b"POST /a HTTP/1.0\r\n", b"DELETE /c?d=e HTTP/1.1\r\n", HOST, HOST, HOST, b"content-length: 5\r\n", b"content-length: 05\r\n",
    b"Content-Length: 0\r\n", b"content-length: 5, 5\r\n", b"content-length:\t7 \r\n", CHUNKED, b"Transfer-Encoding:  Chunked \r\n",
    b"transfer-encoding: chunked, gzip\r\n", b"transfer-encoding: x\r\n", b"transfer-encoding:\x0bchunked\r\n", b"connection: close\r\n",
    b"connection: keep-alive, upgrade\r\n", b"upgrade: h2c\r\n", b"expect: 100-continue\r\n", b"a: b\r\n", b" folded\r\n", b"a : b\r\n", b"\r\n", b"\r\n",
    b"\r\n", b"\r", b"\n", b"hello", b"helloworld", b"5\r\nhello\r\n", b"5;a=\"b\"\r\nhello\r\n", b"0\r\n\r\n", b"0\r\n", b"00000000005\r\nhello\r\n",
    b"-1\r\n", b"ffffffffffffffff\r\n", b"x: y\r\n", b"\x00", b"\xff", BODY,
)  # fmt: skip
USUAL = (get(), post(LENGTH, body=BODY), post(CHUNKED, body=CHUNKS + b"0\r\n\r\n"), post(b"content-length: 0\r\n"))


def random_bytes(chance: random.Random) -> bytes:
    sent = b"".join(
        chance.choice(USUAL) if chance.random() < 0.4 else chance.choice(FRAGMENTS)
        for _ in range(chance.randint(1, 12))
    )
    for _ in range(chance.choice((0, 0, 1, 3))):
        place = chance.randrange(len(sent))
        sent = sent[:place] + chance.choice((b"", b"\r\n", b"\t", b",", b"0", b":", sent[:9])) + sent[place + 1 :]
        if not sent:
            return b"G"
    return sent


def reference(sent: bytes) -> list[tuple[str, bytes]]:
    """The complete requests, as h11 reads them. Empty lines before a request are ignored (RFC 9112, 2.2); h11 refuses them."""
    requests: list[tuple[str, bytes]] = []
    while True:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        connection.receive_data(sent.lstrip(b"\r\n"))
        method, body = "", b""
        try:
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Request):
                    method = event.method.decode()
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                else:
                    return requests
        except h11.RemoteProtocolError:
            return requests
        requests.append((method, body))
        sent = connection.trailing_data[0]


def complete(requests: Requests) -> list[tuple[str, bytes]]:
    """The requests that are answered: what follows the end of the connection is not."""
    read = [(head.method, body) for head, body in zip(requests.heads, requests.bodies, strict=False)]
    ends = (number for number, head in enumerate(requests.heads, 1) if not head.keeps_alive)
    return read[: next(ends, len(read))]


def test_random_bytes_hold_no_request_that_another_parser_does_not_see() -> None:
    seen = 0
    for seed in range(3000):
        chance = random.Random(seed)
        sent = random_bytes(chance)
        whole = complete(read(sent)[0])
        assert whole == reference(sent)[: len(whole)], (seed, sent)
        cuts = sorted(chance.randrange(len(sent) + 1) for _ in range(chance.randint(0, 5)))
        pieces = (sent[a:b] for a, b in zip((0, *cuts), (*cuts, len(sent)), strict=True) if a < b)
        # An unknown method that arrives in pieces is refused at once.
        parts = complete(read(*pieces)[0])
        assert parts == whole[: len(parts)], (seed, sent)
        seen += len(parts)
    assert seen > 1000
