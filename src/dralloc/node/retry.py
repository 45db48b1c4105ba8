"""Work that needs the server: done however long the server is away, or left where there is no time for that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from dralloc.client.transport import TransportError
from dralloc.client.work_queue import Backoff
from dralloc.primitives.errors import ApiError, TooManyRequests

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")

SERVER_FAULTS_FROM: Final = 500


async def until_done(
    what: str, work: Callable[[], Awaitable[Result]], backoff: Backoff, *, despite_refusals: bool = False
) -> Result:
    """Do the work again and again until it succeeds, later and later, and say so each time.

    A refusal ends it unless told otherwise: a server that says no will say so again.
    """
    failures = 0
    while True:
        try:
            return await work()
        except (ApiError, TransportError) as error:
            if not despite_refusals and is_refusal(error):
                raise
            failures += 1
            delay_s = backoff.delay_s(failures)
            _logger.warning("%s: %s; trying again in %.1f s", what, error, delay_s)
        await asyncio.sleep(delay_s)


async def in_time(what: str, work: Awaitable[None], timeout_s: float) -> None:
    """Do the work once; say so where it fails or takes too long. Nobody waits longer for somebody who ends."""
    try:
        async with asyncio.timeout(timeout_s):
            await work
    except (ApiError, TransportError) as error:
        _logger.warning("%s: %s", what, error)
    except TimeoutError:
        _logger.warning("%s: it takes longer than %.0f s", what, timeout_s)


def is_refusal(error: Exception) -> bool:
    """Whether the server understood and said no, which no waiting changes."""
    return isinstance(error, ApiError) and error.code < SERVER_FAULTS_FROM and not isinstance(error, TooManyRequests)
