"""Retries requests to the API server: without limit, or within a bounded time."""

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


async def retry_until_done(
    what: str, work: Callable[[], Awaitable[Result]], backoff: Backoff, *, despite_refusals: bool = False
) -> Result:
    """Retry with backoff until the work succeeds; each failure is logged as `what`.

    A refusal (4xx) is raised unless `despite_refusals`: retrying it would not change the answer.
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
            _logger.warning("%s: %s; retrying in %.1f s", what, error, delay_s)
        await asyncio.sleep(delay_s)


async def try_within(what: str, work: Awaitable[None], timeout_s: float) -> None:
    """Do the work once, within the timeout; a failure is logged as `what`."""
    try:
        async with asyncio.timeout(timeout_s):
            await work
    except (ApiError, TransportError) as error:
        _logger.warning("%s: %s", what, error)
    except TimeoutError:
        _logger.warning("%s: timed out after %.0f s", what, timeout_s)


def is_refusal(error: Exception) -> bool:
    """True for an error that a retry does not change."""
    return isinstance(error, ApiError) and error.code < SERVER_FAULTS_FROM and not isinstance(error, TooManyRequests)
