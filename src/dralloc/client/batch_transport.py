"""A transport that sends writes together, to servers that have the extension for it: a scheduler sends hundreds at the same time.

A write is sent at once if few batches are under way; otherwise it waits for the answer to one, together with others. So batches grow with the
load, and a single write is not delayed. If a batch gets no answer, each of its writes has none: the outcome of all is unknown.

A write that is to run after others is held until they are sent, in one batch with it, and the server tries it when they have succeeded. If
that cannot be, because they are not sent together, it is answered as not tried: its sender sends it later.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Final, Self

import msgspec
from msgspec import Struct

from dralloc.api.dralloc_v1 import BATCH, BATCH_AFTER, BATCH_PATH, BatchedWrite, WriteBatch
from dralloc.client.server_extensions import ServerExtensions
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport, TransportError
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import FailedDependency

WRITES_MAX: Final = 64
# With those that follow others. A server takes no more.
WRITES_IN_ALL_MAX: Final = 128
# A server takes bodies of 3 MiB; a larger write than this is sent alone, as it would be without batches.
BYTES_MAX: Final = 1024 * 1024
UNDER_WAY_MAX: Final = 2
_JSON_TYPES: Final = frozenset({"application/json", "application/merge-patch+json"})
_NOT_TRIED: Final = ClientResponse(
    status=FailedDependency.code, body=b'{"reason":"FailedDependency","message":"not sent with the writes before it"}'
)
# Answers of servers without the extension, which wrote nothing.
_NOT_SERVED: Final = frozenset({403, 404, 405})


class _Response(Struct, frozen=True, gc=False):
    status: int
    body: msgspec.Raw
    warnings: tuple[str, ...] = ()


class _Responses(Struct, frozen=True):
    responses: tuple[_Response, ...]


_RESPONSES: Final = msgspec.json.Decoder(_Responses)

_Waiting = tuple[ClientRequest, "asyncio.Future[ClientResponse]"]


class HeldWrite:
    """A write that follows others, which are sent in the context of this. Afterwards it is not sent any more."""

    def __init__(self, held: dict[asyncio.Future[ClientResponse], ClientRequest], request: ClientRequest) -> None:
        self._held = held
        self._answered: asyncio.Future[ClientResponse] = asyncio.get_running_loop().create_future()
        held[self._answered] = request

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        is_unsent = self._held.pop(self._answered, None) is not None
        if failure is not None:
            # The answer is not asked for.
            self._answered.cancel()
        elif is_unsent and not self._answered.done():
            self._answered.set_result(_NOT_TRIED)

    @property
    def has_succeeded(self) -> bool:
        """False as long as there is no answer."""
        answered = self._answered
        is_answered = answered.done() and not answered.cancelled() and answered.exception() is None
        return is_answered and answered.result().status < 400

    async def answer(self) -> ClientResponse:
        return await self._answered


class BatchTransport:
    """Sends through another transport; closing it closes that one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._extensions = ServerExtensions(transport)
        self._waiting: list[_Waiting] = []
        # Those that are sent with the writes that they follow.
        self._held: dict[asyncio.Future[ClientResponse], ClientRequest] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._will_send = False

    async def send(self, request: ClientRequest) -> ClientResponse:
        if not _is_write(request) or self._extensions.is_known_to_lack(BATCH):
            return await self._transport.send(request)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[ClientResponse] = loop.create_future()
        self._waiting.append((request, answered))
        if not self._will_send and len(self._under_way) < UNDER_WAY_MAX:
            # In the next turn of the loop, together with the others of this one.
            self._will_send = True
            loop.call_soon(self._send_waiting)
        return await answered

    async def hold(self, request: ClientRequest) -> HeldWrite | None:
        """Sends the request with those that it is to run `after`; None if the server does not have the extension for it."""
        return HeldWrite(self._held, request) if await self._extensions.has(BATCH_AFTER) else None

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def abandon(self) -> None:
        """Wait for no answer any more. What was sent may still be done; what waits is not sent."""
        waiting, self._waiting = self._waiting, []
        for answered in (*(answered for _, answered in waiting), *self._held):
            answered.cancel()
        self._held.clear()
        for task in tuple(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def close(self) -> None:
        await self.abandon()
        await self._transport.close()

    def _send_waiting(self) -> None:
        self._will_send = False
        while self._waiting and len(self._under_way) < UNDER_WAY_MAX:
            # Those that were cancelled are not sent.
            waiting = [write for write in self._waiting if not write[1].done()]
            count = _batch_length(waiting)
            writes, self._waiting = waiting[:count], waiting[count:]
            if writes:
                writes += self._followers(writes)
                task = asyncio.get_running_loop().create_task(self._send_together(writes))
                self._under_way.add(task)
                task.add_done_callback(self._was_sent)

    def _followers(self, writes: list[_Waiting]) -> list[_Waiting]:
        """The held writes that follow only these, as many as there is room for."""
        if not self._held:
            return []
        paths = {request.path for request, _ in writes}
        followers = [
            (request, answered)
            for answered, request in self._held.items()
            if request.after <= paths and not answered.done()
        ]
        followers = followers[: WRITES_IN_ALL_MAX - len(writes)]
        for _, answered in followers:
            del self._held[answered]
        return followers

    def _was_sent(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._send_waiting()

    async def _send_together(self, writes: list[_Waiting]) -> None:
        try:
            if len(writes) == 1 or not await self._extensions.has(BATCH):
                await asyncio.gather(*(self._send_alone(*write) for write in writes))
                return
            response = await self._transport.send(_batch_of([request for request, _ in writes]))
            if response.status in _NOT_SERVED:
                # Nothing was written: another server answers now.
                await asyncio.gather(*(self._send_alone(*write) for write in writes))
                return
            answers = _answers(response, len(writes))
        except asyncio.CancelledError:
            for _, answered in writes:
                answered.cancel()
            raise
        except Exception as error:  # noqa: BLE001  # each sender handles the error
            for _, answered in writes:
                if not answered.done():
                    answered.set_exception(error)
            return
        for (_, answered), answer in zip(writes, answers, strict=True):
            if not answered.done():
                answered.set_result(answer)

    async def _send_alone(self, request: ClientRequest, answered: asyncio.Future[ClientResponse]) -> None:
        try:
            answer = _NOT_TRIED if request.after else await self._transport.send(request)
        except Exception as error:  # noqa: BLE001  # the sender handles the error
            if not answered.done():
                answered.set_exception(error)
            return
        if not answered.done():
            answered.set_result(answer)


def _is_write(request: ClientRequest) -> bool:
    return request.method != "GET" and request.headers.get("Content-Type") in _JSON_TYPES and len(request.headers) == 1


def _batch_length(writes: list[_Waiting]) -> int:
    """How many of the first writes fit into a batch; at least one, if there is one."""
    size = 0
    for count, (request, _) in enumerate(writes[:WRITES_MAX]):
        size += len(request.body)
        if size > BYTES_MAX and count:
            return count
    return min(len(writes), WRITES_MAX)


def _batch_of(requests: list[ClientRequest]) -> ClientRequest:
    places = {each.path: place for place, each in enumerate(requests) if not each.after}
    writes = tuple(
        BatchedWrite(
            each.method,
            each.path,
            dict(each.query),
            each.headers["Content-Type"],
            msgspec.Raw(each.body or b"{}"),
            tuple(map(places.__getitem__, each.after)) if each.after else (),
        )
        for each in requests
    )
    headers = {"Content-Type": "application/json"}
    return ClientRequest(method="POST", path=BATCH_PATH, headers=headers, body=msgspec.json.encode(WriteBatch(writes)))


def _answers(response: ClientResponse, count: int) -> list[ClientResponse]:
    if response.status != 200:
        # The batch was refused as a whole, for example because there are too many requests.
        return [response] * count
    try:
        found = _RESPONSES.decode(response.body).responses
    except UNREADABLE as error:
        raise TransportError(f"the answer to a batch of writes cannot be read: {error}") from None
    if len(found) != count:
        raise TransportError(f"a batch of {count} writes was answered with {len(found)} responses")
    return [ClientResponse(status=each.status, body=bytes(each.body), warnings=each.warnings) for each in found]
