"""Extensions for clients with many writes: `GET /dralloc/v1/extensions` lists them, `POST /dralloc/v1/batch` carries many writes.

    {"requests": [{"method": "PATCH", "path": "/api/…", "query": {…}, "contentType": "…", "body": {…}}, …]}
    {"responses": [{"status": 200, "body": {…}}, …]}

Each write is a request of its own: authorized, admitted, guarded and stored as if it had come alone, with a response of its
own. They run at the same time, so their order is not defined, and one that fails does not stop the others. If the objects in the
responses are large together, writes that have not begun get 429.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final

import msgspec

from dralloc.kube.codec import encode
from dralloc.kube.dralloc_v1 import (
    ALLOCATION_FINALIZER,
    BATCH,
    BATCH_PATH,
    EXTENSIONS_PATH,
    BatchedWrite,
    WriteBatch,
)
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import (
    ApiError,
    BadRequest,
    ErrorDetails,
    MethodNotAllowed,
    TooManyRequests,
)
from dralloc.server.http.messages import JSON, HttpRequest, HttpResponse
from dralloc.server.http.statuses import status_of, status_response
from dralloc.server.http.url_paths import ResourcePath, parse_path

PATHS: Final = frozenset({EXTENSIONS_PATH, BATCH_PATH})
EXTENSIONS: Final = (ALLOCATION_FINALIZER, BATCH)

WRITES_MAX: Final = 128
# A few bytes can ask for a large object. Longer answers are sent in pieces, and with so many bytes in them nothing more is begun.
WHOLE_BYTES_MAX: Final = 256 * 1024
ANSWERS_BYTES_MAX: Final = 4 * 1024 * 1024
METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# Those that write, and answer with one object.
SUBRESOURCES: Final = frozenset({"", "status", "binding"})

HandleRequest = Callable[[HttpRequest], Awaitable[HttpResponse]]


_BATCH: Final = msgspec.json.Decoder(WriteBatch)


async def answer(request: HttpRequest, handle: HandleRequest) -> HttpResponse:
    """The response to a request for one of `PATHS`; raises ApiError."""
    if request.path == EXTENSIONS_PATH:
        if request.method != "GET":
            raise MethodNotAllowed(f"{request.path} only supports GET")
        return HttpResponse(body=encode({"extensions": EXTENSIONS}))
    if request.method != "POST":
        raise MethodNotAllowed(f"{request.path} only supports POST")
    if request.query:
        # A client that asks for a dry run must not be answered with writes.
        raise BadRequest(f"{request.path} has no parameters: each request of a batch has a query of its own")
    batch = _read(request.body)
    running = _RunningBatch(request, handle)
    loop = asyncio.get_running_loop()
    writes = [loop.create_task(running.answer_one(write)) for write in batch.requests]
    try:
        # Not `gather`, whose callbacks for each write take longer.
        responses = [await each for each in writes]
    except asyncio.CancelledError:
        for each in writes:
            each.cancel()
        raise
    if running.answered_bytes > WHOLE_BYTES_MAX:
        return HttpResponse(stream=_pieces(responses))
    return HttpResponse(body=b'{"responses":[%b]}' % b",".join(map(_print, responses)))


def _read(body: bytes) -> WriteBatch:
    try:
        batch = _BATCH.decode(body)
    except UNREADABLE as error:
        raise BadRequest(f"the body is not a batch of requests: {error}") from None
    if len(batch.requests) > WRITES_MAX:
        raise BadRequest(f"a batch has at most {WRITES_MAX} requests, and this one has {len(batch.requests)}")
    return batch


class _RunningBatch:
    def __init__(self, batch: HttpRequest, handle: HandleRequest) -> None:
        self._batch = batch
        self._handle = handle
        # In the responses so far.
        self.answered_bytes = 0

    async def answer_one(self, write: BatchedWrite) -> HttpResponse:
        try:
            response = await self._answer_one(write)
        except ApiError as error:
            response = status_response(status_of(error))
        self.answered_bytes += len(response.body)
        return response

    async def _answer_one(self, write: BatchedWrite) -> HttpResponse:
        path = parse_path(write.path)
        if not isinstance(path, ResourcePath) or not _may_contain(write.method, path):
            raise MethodNotAllowed(f"a batch cannot contain {write.method} {write.path}")
        if self.answered_bytes > ANSWERS_BYTES_MAX:
            why = "the responses to this batch are large, please try again later"
            raise TooManyRequests(why, details=ErrorDetails(retry_after_s=1))
        return await self._handle(self._request_of(write))

    def _request_of(self, write: BatchedWrite) -> HttpRequest:
        headers = {
            b"accept": b"application/json",
            b"content-type": write.content_type.encode(),
            b"user-agent": self._batch.headers.get(b"user-agent", b""),
        }
        return HttpRequest(
            write.method,
            write.path,
            write.query,
            headers,
            bytes(write.body),
            self._batch.user,
        )


async def _pieces(responses: Sequence[HttpResponse]) -> AsyncGenerator[bytes, None]:
    yield b'{"responses":['
    for number, response in enumerate(responses):
        yield (b"," if number else b"") + _print(response)
    yield b"]}"


def _may_contain(method: str, path: ResourcePath) -> bool:
    """To delete a whole collection is no short write, and is not answered with one object."""
    return method in METHODS and path.subresource in SUBRESOURCES and (method != "DELETE" or bool(path.name))


def _print(response: HttpResponse) -> bytes:
    body = response.body if response.content_type == JSON else encode(response.body.decode(errors="replace"))
    if not response.headers:
        return b'{"status":%d,"body":%b}' % (response.status, body or b"null")
    warnings = [value.decode("latin-1") for name, value in response.headers if name == b"warning"]
    return b'{"status":%d,"warnings":%b,"body":%b}' % (response.status, encode(warnings), body or b"null")
