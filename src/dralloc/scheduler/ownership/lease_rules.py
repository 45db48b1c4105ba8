"""The rules by which schedulers share the pools of drivers. Pure.

Each driver has one lease; only the scheduler that holds it allocates devices from the driver's pools. A scheduler that has pods waiting asks for a
lease by writing its name into it, and the holder gives the lease up after a turn. Claims may need devices of several drivers, so a scheduler asks
for drivers in the order of their names, one after the other, and keeps those that it has while it waits for a later one: there is always a scheduler
that waits for none, so no two wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from msgspec.structs import replace

from dralloc.client.lease_terms import DEFAULT, Seen, Timing, claimed, may_take
from dralloc.kube.coordination_v1 import Lease, LeaseSpec
from dralloc.kube.meta_v1 import ObjectMeta

# The label of these leases; the value is the driver.
DRIVER_LABEL: Final = "dralloc.io/pools-of-driver"
# The annotation with the name of the scheduler that asks for the lease.
WANTED_BY: Final = "dralloc.io/wanted-by"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLeaseSettings:
    """`identity` is unique for each process; `turn_s` is how long a scheduler keeps a lease that another one asks for."""

    namespace: str
    identity: str
    timing: Timing = DEFAULT
    turn_s: float = 4.0


class LeaseStep(Enum):
    """What a scheduler does with the lease of a driver."""

    TAKE = "take"
    RENEW = "renew"
    GIVE = "give"
    ASK = "ask"
    NOTHING = "nothing"


def next_step(
    seen: Seen, settings: PoolLeaseSettings, now_s: float, *, held_since_s: float | None, asks: bool, awaits_later: bool
) -> LeaseStep:
    """`held_since_s`: since when we hold the lease, None if we do not; `asks`: this is the driver that we ask for now;
    `awaits_later`: we ask for a driver that comes after this one.
    """
    me = settings.identity
    if held_since_s is None:
        if may_take(seen, me, now_s):
            return LeaseStep.TAKE
        return LeaseStep.ASK if asks and not wanted_by(seen.lease) else LeaseStep.NOTHING
    if seen.lease.spec.holder_identity != me:
        return LeaseStep.NOTHING
    is_wanted = wanted_by(seen.lease) not in ("", me)
    return (
        LeaseStep.GIVE
        if is_wanted and not awaits_later and now_s >= held_since_s + settings.turn_s
        else LeaseStep.RENEW
    )


def asked_driver(drivers: Iterable[str], held: Collection[str]) -> str | None:
    """The driver that a scheduler with waiting pods asks for: the first that it does not hold."""
    return min((driver for driver in drivers if driver not in held), default=None)


def wanted_by(lease: Lease) -> str:
    return lease.metadata.annotations.get(WANTED_BY, "")


def new_lease(driver: str, namespace: str) -> Lease:
    metadata = ObjectMeta(name=f"dralloc-pools-{driver}", namespace=namespace, labels={DRIVER_LABEL: driver})
    return Lease(metadata=metadata, spec=LeaseSpec())


def held_lease(lease: Lease, settings: PoolLeaseSettings, now: datetime) -> Lease:
    """The lease, ours and renewed; what we asked for is fulfilled."""
    renewed = claimed(lease, settings.identity, now, settings.timing)
    return asked_lease(renewed, "") if wanted_by(lease) == settings.identity else renewed


def given_lease(lease: Lease, now: datetime, timing: Timing) -> Lease:
    """The lease in the hands of the scheduler that asked for it."""
    return asked_lease(claimed(lease, wanted_by(lease), now, timing), "")


def released_lease(lease: Lease) -> Lease:
    return replace(lease, spec=replace(lease.spec, holder_identity=None))


def asked_lease(lease: Lease, identity: str) -> Lease:
    annotations = {name: value for name, value in lease.metadata.annotations.items() if name != WANTED_BY}
    if identity:
        annotations[WANTED_BY] = identity
    return replace(lease, metadata=replace(lease.metadata, annotations=annotations))
