"""Timeouts and intervals of a node as one value. The defaults are a kubelet's; tests use shorter ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dralloc.client.work_queue import Backoff
from dralloc.node.kubelet.plugin_sockets import CALL_TIMEOUT_S, DIAL_TIMEOUT_S, GET_INFO_TIMEOUT_S, NOTIFY_TIMEOUT_S


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
