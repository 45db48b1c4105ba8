"""When a lease may be taken, and what it says then. Pure.

A lease expires when *we* have seen it unchanged for its duration, on our own monotonic clock; wall-clock times from
other machines are never compared. So clocks may differ, and may jump.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from dralloc.kube.coordination_v1 import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The lease duration, the renew deadline after which a leader gives up, and the retry interval."""

    lease_s: int = 15
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        # A leader must stop before another replica may start.
        assert self.retry_s < self.renew_deadline_s < self.lease_s


DEFAULT: Final = Timing()


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease as last read, and the time since which it is unchanged."""

    lease: Lease
    since_s: float


def may_take(seen: Seen, identity: str, now_s: float) -> bool:
    """True if the lease is ours, has no holder, or has expired."""
    spec = seen.lease.spec
    if not spec.holder_identity or spec.holder_identity == identity:
        return True
    return now_s >= seen.since_s + (spec.lease_duration_seconds or 0)


def claimed(lease: Lease, identity: str, now: datetime, timing: Timing) -> Lease:
    """Returns the lease with us as its holder, renewed now."""
    spec, moment = lease.spec, now.isoformat(timespec="microseconds").replace("+00:00", "Z")
    ours = spec.holder_identity == identity
    renewed = replace(
        spec,
        holder_identity=identity,
        lease_duration_seconds=timing.lease_s,
        renew_time=moment,
        acquire_time=spec.acquire_time if ours else moment,
        lease_transitions=(spec.lease_transitions or 0) + (0 if ours or not spec.holder_identity else 1),
    )
    return replace(lease, spec=renewed)
