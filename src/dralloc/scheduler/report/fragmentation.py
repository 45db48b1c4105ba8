"""The fragmentation of a cluster by driver and cause (`stranded_devices`), which follows changes: a node is computed again only after it
changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping

from dralloc.allocator.features import Features
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_fit import misfit_of_offer
from dralloc.scheduler.decide.typical_pods import TypicalPod
from dralloc.scheduler.report.device_places import DevicePlaces, LocalPool, Place, PlacedPools
from dralloc.scheduler.report.stranded_devices import (
    ANY_POD,
    ELSEWHERE,
    DeviceAmounts,
    IdleDevices,
    IdleSurvey,
    StrandedCause,
    any_request,
    is_for_some,
)


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
