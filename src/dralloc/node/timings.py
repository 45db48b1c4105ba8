"""Timeouts and intervals of a node as one value. The defaults are a kubelet's; tests use shorter ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dralloc.client.transport import TransportError
from dralloc.client.work_queue import Backoff
from dralloc.node.kubelet.plugin_sockets import CALL_TIMEOUT_S, DIAL_TIMEOUT_S, GET_INFO_TIMEOUT_S, NOTIFY_TIMEOUT_S
from dralloc.primitives.errors import ApiError, TooManyRequests


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """All values are in seconds."""

    # Registration: how often the registry is polled, and the timeouts of the handshake.
    poll_s: float = 0.5
    dial_s: float = DIAL_TIMEOUT_S
    get_info_s: float = GET_INFO_TIMEOUT_S
    notify_s: float = NOTIFY_TIMEOUT_S
    register_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.5, most_s=120.0))
    # NodePrepareResources and NodeUnprepareResources.
    call_s: float = CALL_TIMEOUT_S
    # After this time, the slices of a disconnected driver are deleted.
    slice_cleanup_delay_s: float = 30.0
    slice_cleanup_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, most_s=300.0))
    # Device health: the delay before a broken stream is reopened, and the default lifetime of a report.
    health_reopen_s: float = 5.0
    health_fresh_s: float = 30.0
    # How often claims of deleted pods are searched for.
    reconcile_s: float = 60.0
    # How long the end of a pod waits for drivers that do not unprepare its claims.
    unprepare_s: float = 120.0
    # Failed syncs of a pod.
    pod_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.25, most_s=10.0))
    # Restarts of an exited container: at once, then with this backoff, until it has run for `crash_forgotten_s`.
    crash_first_s: float = 10.0
    crash_most_s: float = 300.0
    crash_forgotten_s: float = 600.0
    # Requests to an API server that is not reachable when the node starts.
    connect_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.5, most_s=30.0))
    # Lease duration, and the intervals of lease and status renewal.
    lease_s: int = 40
    heartbeat_s: float = 10.0
    node_status_s: float = 300.0
    # The timeout for marking the node not ready when the agent ends.
    leave_s: float = 10.0


DEFAULT_TIMINGS: Final = Timings()


# --- Retry ----------------------------------------------------------------------------------------------------------
# Retries requests to the API server: without limit, or within a bounded time.


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
