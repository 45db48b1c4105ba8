"""What a response is written to."""

from __future__ import annotations

import asyncio
import socket

import uvloop

from dralloc.apiserver.http.limited_connection import _Output


def test_the_head_of_a_response_to_a_client_that_left_is_dropped() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        errors: list[str] = []
        loop.set_exception_handler(lambda _, context: errors.append(context["message"]))
        ours, client = socket.socketpair()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        output = _Output(transport, loop)
        output.write(b"HTTP/1.1 200 OK\r\n\r\n")
        client.close()
        transport.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        output.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.sleep(0)
        output.write(b"piece")
        output.close()
        return errors

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == []
