"""The fragmentation of a cluster by driver and cause (`stranded_devices`), which follows changes: a node is computed again only after it
changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping

from dralloc.allocator.features import Features
from dralloc.devices.identity import PoolId
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_fit import misfit_of_offer
from dralloc.scheduler.decide.typical_pods import TypicalPod
from dralloc.scheduler.report.stranded_devices import (
    ANY_POD,
    ELSEWHERE,
    DeviceAmounts,
    IdleDevices,
    IdleSurvey,
    LocalPool,
    StrandedCause,
    any_request,
    is_for_some,
)
from dralloc.scheduler.state.change_log import EverythingChanged, NodeChanged, NodeLoaded
from dralloc.snapshot.pools import PoolState


class Fragmentation:
    """The fragmentation of a cluster, which follows the changes of the view."""

    def __init__(self, view: ClusterView, features: Features, typical: Iterable[TypicalPod] = ()) -> None:
        self._view = view
        self._features = features
        self._typical = tuple(typical)
        # By node, or by pool where its devices are not part of one node; then by driver.
        self._known: dict[str | PoolId, Mapping[str, IdleDevices]] = {}
        self._idle: Counter[str] = Counter()
        self._stranded: Counter[tuple[str, StrandedCause]] = Counter()
        self._next: int | None = None
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
        self._next = None

    def by_driver(self) -> Mapping[str, IdleDevices]:
        """Every driver that has devices, with all causes."""
        self._follow()
        return {
            driver: IdleDevices(idle, {cause: self._stranded[driver, cause] for cause in StrandedCause})
            for driver, idle in sorted(self._idle.items())
        }

    def on_node(self, name: str) -> Mapping[str, IdleDevices]:
        """By driver."""
        self._follow()
        return self._known.get(name, {})

    # --- Following changes ------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        changes, since = self._view.changes, self._next
        entries = None if since is None else changes.since(since)
        self._next = changes.next
        changed: set[str | PoolId] = set()
        for entry in entries if entries is not None else (EverythingChanged(),):
            match entry:
                case EverythingChanged():
                    changed = {*self._known, *self._view.nodes, *self._pools_of_no_node()}
                    break
                case NodeChanged(name) | NodeLoaded(name):
                    changed.add(name)
                case _:
                    changed |= self._places_of(entry.pool_id)
        for place in changed:
            self._count(place, -1)
            found = self._on_node(place) if isinstance(place, str) else self._in_pool(place)
            if found:
                self._known[place] = found
                self._count(place, 1)
            else:
                self._known.pop(place, None)

    def _count(self, place: str | PoolId, sign: int) -> None:
        for driver, each in self._known.get(place, {}).items():
            self._idle[driver] += sign * each.idle
            for cause, amount in each.stranded.items():
                self._stranded[driver, cause] += sign * amount

    def _places_of(self, pool_id: PoolId) -> set[str | PoolId]:
        pool = self._view.snapshot.pools.get(pool_id)
        return {each.node_name or pool_id for each in pool.slices} if pool is not None else {pool_id}

    def _pools_of_no_node(self) -> Iterator[PoolId]:
        for pool_id, pool in self._view.snapshot.pools.items():
            if not all(each.node_name for each in pool.slices):
                yield pool_id

    # --- One place ------------------------------------------------------------------------------------------------

    def _on_node(self, name: str) -> Mapping[str, IdleDevices]:
        node = self._view.nodes.get(name)
        if node is None:
            return {}
        place, snapshot = node.offer.place, self._view.snapshot
        pools: dict[str, list[LocalPool]] = {}
        for pool in snapshot.view(place, self._features.visibility).pools:
            slices = [pool.slices.slices[index] for index in pool.layout.slices]
            local = [each for each in slices if each.node_name == name]
            if local and pool.layout.status is PoolState.READY:
                pools.setdefault(pool.pool_id.driver, []).append(LocalPool(pool, local))
        if not pools:
            return {}
        selecting = [
            (pod, why) for pod in self._typical if (why := misfit_of_offer(pod.node, node.offer)) not in ELSEWHERE
        ]
        found: dict[str, IdleDevices] = {}
        for driver, mine in pools.items():
            asking = [(pod, why) for pod, why in selecting if is_for_some(pod, mine)]
            pods = [pod for pod, why in asking if why is None]
            is_closed = not pods if asking else misfit_of_offer(ANY_POD, node.offer) is not None
            if not asking:
                pods = [any_request(self._features)]
            found[driver] = IdleSurvey(self._view, self._features, place, mine, pods, self._amounts).result(
                is_closed, node
            )
        return found

    def _in_pool(self, pool_id: PoolId) -> Mapping[str, IdleDevices]:
        """Devices that several nodes can use: whether a node has the cpu for them is not asked."""
        snapshot = self._view.snapshot
        slices = snapshot.pools.get(pool_id)
        anchored = [each for each in slices.slices if not each.node_name] if slices is not None else []
        for node in self._view.nodes.values() if anchored else ():
            place = node.offer.place
            pool = next(
                (each for each in snapshot.view(place, self._features.visibility).pools if each.pool_id == pool_id),
                None,
            )
            if pool is None or pool.layout.status is not PoolState.READY:
                continue
            mine = [LocalPool(pool, [each for each in anchored if each in pool.slices.slices])]
            pods = [pod for pod in self._typical if is_for_some(pod, mine)] or [any_request(self._features)]
            return {
                pool_id.driver: IdleSurvey(self._view, self._features, place, mine, pods, self._amounts).result(
                    False, None
                )
            }
        return {}
