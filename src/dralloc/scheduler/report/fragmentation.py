"""The fragmentation of a cluster by driver and cause (`stranded_devices`), which follows changes: a node is computed again only after it
changed."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

from dralloc.devices.allocator.features import Features
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.timestamps import print_timestamp
from dralloc.primitives.clock import Clock
from dralloc.scheduler.contract import ClusterView, Decision, Placement
from dralloc.scheduler.decide.cycle import SchedulingAttempt
from dralloc.scheduler.decide.node_fit import misfit_of_offer
from dralloc.scheduler.decide.typical_pods import TypicalPod, TypicalPods
from dralloc.scheduler.report.device_places import DevicePlaces, LocalPool, Place, PlacedPools
from dralloc.scheduler.report.stranded_devices import (
    ANY_POD,
    ELSEWHERE,
    WHOLE,
    DeviceAmounts,
    IdleDevices,
    IdleSurvey,
    StrandedCause,
    any_request,
    is_for_some,
)
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.placed_pods import claims_used_by


class Fragmentation:
    """The fragmentation of a cluster, which follows the changes of the view."""

    def __init__(self, view: ClusterView, features: Features, typical: Iterable[TypicalPod] = ()) -> None:
        self._view = view
        self._features = features
        self._typical = tuple(typical)
        # By node, or by pool where its devices are not part of one node; then by driver.
        self._known: dict[Place, Mapping[str, IdleDevices]] = {}
        self._idle: Counter[str] = Counter()
        self._stranded: Counter[tuple[str, StrandedCause]] = Counter()
        self._places = DevicePlaces(view, features)
        # What places with equal devices share.
        self._amounts: dict[Hashable, DeviceAmounts] = {}

    @property
    def typical(self) -> tuple[TypicalPod, ...]:
        return self._typical

    @typical.setter
    def typical(self, typical: Iterable[TypicalPod]) -> None:
        """Everything is computed again."""
        self._typical = tuple(typical)
        self._amounts.clear()
        self._places.start_over()

    def by_driver(self) -> Mapping[str, IdleDevices]:
        """Every driver that has devices, with all causes."""
        for _ in self.follow():
            pass
        return {
            driver: IdleDevices(idle, {cause: self._stranded[driver, cause] for cause in StrandedCause})
            for driver, idle in sorted(self._idle.items())
        }

    def on_node(self, name: str) -> Mapping[str, IdleDevices]:
        """By driver."""
        for _ in self.follow():
            pass
        return self._known.get(name, {})

    # --- Following changes ------------------------------------------------------------------------------------------

    def follow(self) -> Iterator[None]:
        """Take in what changed, one place in each step."""
        for place in self._places.outdated(self._known):
            self._count(place, -1)
            found = self._at(place)
            if found:
                self._known[place] = found
                self._count(place, 1)
            else:
                self._known.pop(place, None)
            yield

    def _count(self, place: Place, sign: int) -> None:
        for driver, each in self._known.get(place, {}).items():
            self._idle[driver] += sign * each.idle
            for cause, amount in each.stranded.items():
                self._stranded[driver, cause] += sign * amount

    # --- One place ------------------------------------------------------------------------------------------------

    def _at(self, place: Place) -> Mapping[str, IdleDevices]:
        """Of devices that several nodes can use, it is not asked whether a node has the cpu for them."""
        there = self._places.devices_at(place)
        if there is None:
            return {}
        if there.node is None:
            return {driver: self._shared(there, mine) for driver, mine in there.pools.items()}
        node = there.node
        selecting = [
            (pod, why) for pod in self._typical if (why := misfit_of_offer(pod.node, node.offer)) not in ELSEWHERE
        ]
        found: dict[str, IdleDevices] = {}
        for driver, mine in there.pools.items():
            asking = [(pod, why) for pod, why in selecting if is_for_some(pod, mine)]
            pods = [pod for pod, why in asking if why is None]
            is_closed = not pods if asking else misfit_of_offer(ANY_POD, node.offer) is not None
            if not asking:
                pods = [any_request(self._features)]
            found[driver] = self._survey(there, mine, pods).result(is_closed, node)
        return found

    def _shared(self, there: PlacedPools, mine: list[LocalPool]) -> IdleDevices:
        pods = [pod for pod in self._typical if is_for_some(pod, mine)] or [any_request(self._features)]
        return self._survey(there, mine, pods).result(False, None)

    def _survey(self, there: PlacedPools, mine: list[LocalPool], pods: list[TypicalPod]) -> IdleSurvey:
        return IdleSurvey(self._view, self._features, there.place, mine, pods, self._amounts)


# --- Fragmentation history ------------------------------------------------------------------------------------------
# The fragmentation of the last hours, for the web page: samples of what the metrics show now.


SAMPLED_EVERY_S: Final = 30.0
# Three hours.
SAMPLES_MAX: Final = 360


class FragmentationHistory:
    """Samples by driver: idle devices, and the stranded part of them by cause."""

    def __init__(self) -> None:
        self._samples: deque[dict[str, Any]] = deque(maxlen=SAMPLES_MAX)
        self._read: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None

    async def run(self, read: Callable[[], Awaitable[Mapping[str, IdleDevices]]], clock: Clock) -> None:
        """Takes samples until cancelled."""

        async def sample() -> list[dict[str, Any]]:
            """None as long as there are no devices."""
            drivers = await read()
            return [{"time": print_timestamp(clock.now()), "drivers": _values(drivers)}] if drivers else []

        self._read = sample
        while True:
            self._samples += await sample()
            await asyncio.sleep(SAMPLED_EVERY_S)

    async def values(self) -> dict[str, Any]:
        """The samples, and one of now."""
        now = await self._read() if self._read is not None else []
        return {"samples": [*self._samples, *now]}


def _values(drivers: Mapping[str, IdleDevices]) -> dict[str, Any]:
    return {
        driver: {
            "idle": each.idle / WHOLE,
            "stranded": {cause.value: amount / WHOLE for cause, amount in each.stranded.items()},
        }
        for driver, each in drivers.items()
    }


# --- Observed fragmentation -----------------------------------------------------------------------------------------
# The fragmentation that the metrics show: typical are the pods that the scheduler has placed.


class ObservedFragmentation:
    """`pods` are those that exist; they are counted once, for what was placed in earlier terms."""

    def __init__(self, cluster: ClusterState, features: Features, pods: Callable[[], Iterable[Pod]]) -> None:
        self._cluster = cluster
        self._features = features.of_scheduler()
        self._pods = pods
        # Of the pods that existed when it was first asked; None before.
        self._uncounted: deque[Pod] | None = None
        self._typical = TypicalPods()
        self._fragmentation = Fragmentation(cluster, self._features)

    def decided(self, attempt: SchedulingAttempt, decision: Decision) -> None:
        if self._uncounted is not None and isinstance(decision, Placement) and attempt.claims.unallocated:
            self._typical.observe(attempt.key, attempt.table.requirements, attempt.claims.unallocated)

    def by_driver(self) -> Mapping[str, IdleDevices]:
        for _ in self.follow():
            pass
        return self._fragmentation.by_driver()

    def follow(self) -> Iterator[None]:
        """Take in what changed, one pod or place in each step; all places, if other pods are typical now."""
        if self._uncounted is None:
            self._uncounted = deque(self._pods())
        while self._uncounted:
            pod = self._uncounted.popleft()
            claims = filter(None, map(self._cluster.find_claim, claims_used_by(pod)))
            self._typical.count(pod, claims, self._cluster.classes, self._features)
            yield
        if (top := self._typical.top()) != self._fragmentation.typical:
            self._fragmentation.typical = top
        yield from self._fragmentation.follow()
