"""How long a node waits for others, as one value: the defaults are a kubelet's, tests choose shorter ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dralloc.client.work_queue import Backoff
from dralloc.kubelet.plugin_limits import CALL_TIMEOUT_S, DIAL_TIMEOUT_S, GET_INFO_TIMEOUT_S, NOTIFY_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds, all of them."""

    # Registration: how often the directory is looked at, and how long each step of the handshake may take.
    look_s: float = 0.5
    dial_s: float = DIAL_TIMEOUT_S
    get_info_s: float = GET_INFO_TIMEOUT_S
    notify_s: float = NOTIFY_TIMEOUT_S
    register_again: Backoff = field(default_factory=lambda: Backoff(first_s=0.5, most_s=120.0))
    # One call of a driver.
    call_s: float = CALL_TIMEOUT_S
    # A driver that is gone for this long has lost its slices.
    wipe_after_s: float = 30.0
    wipe_again: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, most_s=300.0))
    # Device health: a broken stream is opened again, and what is not refreshed is not known any more.
    health_reopen_s: float = 5.0
    health_fresh_s: float = 30.0
    # Claims of pods that are no more are looked for.
    reconcile_s: float = 60.0
    # A pod that cannot start, or whose end failed, is tried again.
    pod_again: Backoff = field(default_factory=lambda: Backoff(first_s=0.25, most_s=10.0))
    # A container that exits is started again: at once, then later and later until it has run this long.
    crash_first_s: float = 10.0
    crash_most_s: float = 300.0
    crash_forgotten_s: float = 600.0
    # A server that is not there when a node starts is asked again.
    reach_again: Backoff = field(default_factory=lambda: Backoff(first_s=0.5, most_s=30.0))
    # The node says that it is alive.
    lease_s: int = 40
    heartbeat_s: float = 10.0
    node_status_s: float = 300.0
    # How long it may take to say that nobody looks after it any more.
    leave_s: float = 10.0


DEFAULT_TIMINGS: Final = Timings()
