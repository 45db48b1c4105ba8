"""A transport that sends writes together, to servers that have the extension for it: a scheduler sends hundreds at the same time.

A write is sent at once if few batches are under way; otherwise it waits for the answer to one, together with others. So batches grow with the
load, and a single write is not delayed. If a batch gets no answer, each of its writes has none: the outcome of all is unknown.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec
from msgspec import Struct

from dralloc.client.server_extensions import ServerExtensions
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport, TransportError
from dralloc.kube.dralloc_v1 import BATCH, BATCH_PATH, BatchedWrite, WriteBatch
from dralloc.primitives.decoders import UNREADABLE

WRITES_MAX: Final = 64
# A server takes bodies of 3 MiB; a larger write than this is sent alone, as it would be without batches.
BYTES_MAX: Final = 1024 * 1024
UNDER_WAY_MAX: Final = 2
_JSON_TYPES: Final = frozenset({"application/json", "application/merge-patch+json"})
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


class BatchTransport:
    """Sends through another transport; closing it closes that one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._extensions = ServerExtensions(transport)
        self._waiting: list[_Waiting] = []
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

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def abandon(self) -> None:
        """Wait for no answer any more. What was sent may still be done; what waits is not sent."""
        waiting, self._waiting = self._waiting, []
        for _, answered in waiting:
            answered.cancel()
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
                task = asyncio.get_running_loop().create_task(self._send_together(writes))
                self._under_way.add(task)
                task.add_done_callback(self._was_sent)

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
            answer = await self._transport.send(request)
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
    writes = tuple(
        BatchedWrite(
            each.method,
            each.path,
            dict(each.query),
            each.headers["Content-Type"],
            msgspec.Raw(each.body or b"{}"),
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
