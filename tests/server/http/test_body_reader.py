"""The time that a client has to send a body."""

from __future__ import annotations

import asyncio

import pytest

from dralloc.primitives.errors import BadRequest
from dralloc.server.http import application
from dralloc.server.http.application import read_body


class SlowBody:
    """A body of which only these pieces arrive."""

    has_arrived = False

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def receive(self) -> tuple[bytes, bool]:
        if not self._pieces:
            await asyncio.Event().wait()
        return self._pieces.pop(0), True


@pytest.mark.parametrize("pieces", [(), (b"{",)])
def test_a_body_that_does_not_arrive_is_given_up(pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "BODY_TIME_MAX_S", 0.01)
    with pytest.raises(BadRequest, match="did not arrive"):
        asyncio.run(read_body(SlowBody(*pieces), {b"content-length": b"10"}))
