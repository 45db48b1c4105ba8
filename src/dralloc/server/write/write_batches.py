"""Extensions for clients with many writes: `GET /dralloc/v1/extensions` lists them, `POST /dralloc/v1/batch` carries many writes.

    {"requests": [{"method": "PATCH", "path": "/api/…", "query": {…}, "contentType": "…", "body": {…}}, …]}
    {"responses": [{"status": 200, "body": {…}}, …]}

Each write is a request of its own: authorized, admitted, guarded and stored as if it had come alone, with a response of its
own. They run at the same time, so their order is not defined, and one that fails does not stop the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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
    MethodNotAllowed,
)
from dralloc.server.http.messages import JSON, HttpRequest, HttpResponse
from dralloc.server.http.statuses import status_of, status_response
from dralloc.server.http.url_paths import ResourcePath, parse_path

PATHS: Final = frozenset({EXTENSIONS_PATH, BATCH_PATH})
EXTENSIONS: Final = (ALLOCATION_FINALIZER, BATCH)

WRITES_MAX: Final = 128
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
    loop = asyncio.get_running_loop()
    writes = [loop.create_task(_answer_one(request, write, handle)) for write in batch.requests]
    try:
        # Not `gather`, whose callbacks for each write take longer.
        responses = [await each for each in writes]
    except asyncio.CancelledError:
        for each in writes:
            each.cancel()
        raise
    return HttpResponse(body=b'{"responses":[%b]}' % b",".join(map(_print, responses)))


def _read(body: bytes) -> WriteBatch:
    try:
        batch = _BATCH.decode(body)
    except UNREADABLE as error:
        raise BadRequest(f"the body is not a batch of requests: {error}") from None
    if len(batch.requests) > WRITES_MAX:
        raise BadRequest(f"a batch has at most {WRITES_MAX} requests, and this one has {len(batch.requests)}")
    return batch


async def _answer_one(batch: HttpRequest, write: BatchedWrite, handle: HandleRequest) -> HttpResponse:
    try:
        path = parse_path(write.path)
        if not isinstance(path, ResourcePath) or not _may_contain(write.method, path):
            raise MethodNotAllowed(f"a batch cannot contain {write.method} {write.path}")
        return await handle(_request_of(batch, write))
    except ApiError as error:
        return status_response(status_of(error))


def _request_of(batch: HttpRequest, write: BatchedWrite) -> HttpRequest:
    headers = {
        b"accept": b"application/json",
        b"content-type": write.content_type.encode(),
        b"user-agent": batch.headers.get(b"user-agent", b""),
    }
    return HttpRequest(write.method, write.path, write.query, headers, bytes(write.body), batch.user)


def _may_contain(method: str, path: ResourcePath) -> bool:
    """To delete a whole collection is no short write, and is not answered with one object."""
    return method in METHODS and path.subresource in SUBRESOURCES and (method != "DELETE" or bool(path.name))


def _print(response: HttpResponse) -> bytes:
    body = response.body if response.content_type == JSON else encode(response.body.decode(errors="replace"))
    if not response.headers:
        return b'{"status":%d,"body":%b}' % (response.status, body or b"null")
    warnings = [value.decode("latin-1") for name, value in response.headers if name == b"warning"]
    return b'{"status":%d,"warnings":%b,"body":%b}' % (response.status, encode(warnings), body or b"null")
