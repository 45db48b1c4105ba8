"""Extensions for clients with many writes: `GET /dralloc/v1/extensions` lists them, `POST /dralloc/v1/batch` carries many writes.

    {"requests": [{"method": "PATCH", "path": "/api/…", "query": {…}, "contentType": "…", "body": {…}}, {…, "after": [0]}, …]}
    {"responses": [{"status": 200, "body": {…}}, …]}

Each write is a request of its own: authorized, admitted, guarded and stored as if it had come alone, with a response of its
own. They run at the same time, so their order is not defined, and one that fails does not stop the others, except those that are to
run `after` it: a write begins when those that it names have succeeded, and gets 424 if one has failed. A binding begins already when the
statuses of claims that it names are queued in the store, so that one commit stores all of them: it is stored after them, or not at all.
If the objects in the responses are large together, writes that have not begun get 429.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from dralloc.api.codec import encode
from dralloc.api.dralloc_v1 import (
    ALLOCATION_FINALIZER,
    BATCH,
    BATCH_AFTER,
    BATCH_PATH,
    EXTENSIONS_PATH,
    BatchedWrite,
    WriteBatch,
)
from dralloc.api.registry import RESOURCE_CLAIM
from dralloc.apiserver.http.messages import JSON, HttpRequest, HttpResponse
from dralloc.apiserver.http.statuses import status_of, status_response
from dralloc.apiserver.http.url_paths import ResourcePath, parse_path
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import (
    ApiError,
    BadRequest,
    ErrorDetails,
    FailedDependency,
    MethodNotAllowed,
    TooManyRequests,
)

PATHS: Final = frozenset({EXTENSIONS_PATH, BATCH_PATH})
EXTENSIONS: Final = (ALLOCATION_FINALIZER, BATCH, BATCH_AFTER)

WRITES_MAX: Final = 128
# A few bytes can ask for a large object. Longer answers are sent in pieces, and with so many bytes in them nothing more is begun.
WHOLE_BYTES_MAX: Final = 256 * 1024
ANSWERS_BYTES_MAX: Final = 4 * 1024 * 1024
CONFLICT: Final = 409
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
    loop, writes = asyncio.get_running_loop(), list[_RunningWrite]()
    followed = {place for write in batch.requests for place in write.after}
    for place, write in enumerate(batch.requests):
        earlier = [writes[place] for place in write.after]
        queued = loop.create_future() if place in followed else None
        writes.append(_RunningWrite(loop.create_task(running.answer_one(write, earlier, queued)), queued))
    try:
        # Not `gather`, whose callbacks for each write take longer.
        responses = [await each.task for each in writes]
    except asyncio.CancelledError:
        for each in writes:
            each.task.cancel()
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
    for place, write in enumerate(batch.requests):
        if any(not 0 <= earlier < place for earlier in write.after):
            raise BadRequest(f"requests[{place}].after: must be the places, from 0, of earlier requests of the batch")
    return batch


class _RunningWrite(NamedTuple):
    task: asyncio.Task[HttpResponse]
    # The number of the store's queue that the write is in; None if it has ended without one. There is none if no other write follows it.
    queued: asyncio.Future[int | None] | None

    async def queue(self) -> int | None:
        """The queue that the write is in; None if it has succeeded. Raises `FailedDependency`."""
        number = await self.queued if self.queued is not None else None
        if number is not None and not self.task.done():
            return number
        await self.succeed()
        return None

    async def succeed(self) -> None:
        """Wait until the write has succeeded; raises `FailedDependency`."""
        if (await self.task).status >= 400:
            raise FailedDependency("not tried: a request of the batch that had to succeed before it failed")


class _RunningBatch:
    def __init__(self, batch: HttpRequest, handle: HandleRequest) -> None:
        self._batch = batch
        self._handle = handle
        # In the responses so far.
        self.answered_bytes = 0

    async def answer_one(
        self, write: BatchedWrite, earlier: Sequence[_RunningWrite], queued: asyncio.Future[int | None] | None
    ) -> HttpResponse:
        on_queued = None if queued is None else partial(_set_done, queued)
        try:
            response = await self._answer_one(write, earlier, on_queued)
        except ApiError as error:
            response = status_response(status_of(error))
        finally:
            if on_queued is not None:
                on_queued(None)
        self.answered_bytes += len(response.body)
        return response

    async def _answer_one(
        self, write: BatchedWrite, earlier: Sequence[_RunningWrite], on_queued: Callable[[int], None] | None
    ) -> HttpResponse:
        """The response to a write, when those before it have succeeded."""
        path = parse_path(write.path)
        if not isinstance(path, ResourcePath) or not _may_contain(write.method, path):
            raise MethodNotAllowed(f"a batch cannot contain {write.method} {write.path}")
        follows: set[int] = set()
        for each in earlier:
            if path.subresource != "binding":
                await each.succeed()
            elif (number := await each.queue()) is not None:
                follows.add(number)
        if self.answered_bytes > ANSWERS_BYTES_MAX:
            why = "the responses to this batch are large, please try again later"
            raise TooManyRequests(why, details=ErrorDetails(retry_after_s=1))
        request = self._request_of(write, on_queued if _is_claim_status(path) else None, follows)
        response = await self._handle(request)
        if follows and response.status == CONFLICT:
            # The reason may be that what it follows was not stored. Other errors of the store do not say that the binding was not.
            for each in earlier:
                await each.succeed()
        return response

    def _request_of(
        self, write: BatchedWrite, on_queued: Callable[[int], None] | None, follows: Collection[int]
    ) -> HttpRequest:
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
            on_queued=on_queued,
            follows=follows,
        )


def _set_done(future: asyncio.Future[int | None], queue: int | None) -> None:
    if not future.done():
        future.set_result(queue)


def _is_claim_status(path: ResourcePath) -> bool:
    """Only claims are read by the guard of bindings as they are queued: what follows other writes needs them to be stored."""
    return (path.group, path.resource, path.subresource) == (RESOURCE_CLAIM.group, RESOURCE_CLAIM.plural, "status")


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
