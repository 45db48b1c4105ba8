"""How much of the idle devices no typical pod can use, by driver and cause.

The unit is a thousandth of a device. Of a device that shares can use, as much is idle as of the capacity with the smallest
part left. Partitions of a card draw from its counter set: of a card, the mean part that is left of its counters is idle. Every
idle amount is either usable or stranded by the first of these causes:

- `taint`: the node or the device repels all typical pods that ask for such a device (a cordoned node included);
- `counters`: no partition that typical pods ask for can use what is left of the counter set;
- `remainder-too-small`: for each device, what the typical request that uses it best leaves over; all of a device where no
  request fits, or where the node has too few such devices for one;
- `cpu-starved`: devices could serve requests, but the cpu, memory or number of pods that the node has left suffices only
  for less, whichever typical pod uses it.

Typical pods are those that a user or the scheduler names; where none of them asks for the devices of a node, a request for
one device that names no amounts is typical.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from dralloc.devices.allocator.availability import PoolAvailability
from dralloc.devices.allocator.candidate_devices import DeviceCriteria, SliceMatches, matches_of
from dralloc.devices.allocator.features import Features
from dralloc.devices.device_usage import FREE, DeviceUsage
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.slices import IndexedSlice, bits_of
from dralloc.devices.taints import repels
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_fit import NOT_SELECTED, WRONG_NAME, NodeRequirements
from dralloc.scheduler.decide.typical_pods import TypicalPod, TypicalRequest
from dralloc.scheduler.report.device_places import LocalPool
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_resources import PodResources

WHOLE: Final = 1000
KNOWN_MAX: Final = 20_000


class StrandedCause(Enum):
    TAINT = "taint"
    COUNTERS = "counters"
    REMAINDER = "remainder-too-small"
    CPU = "cpu-starved"


class IdleDevices(NamedTuple):
    """The idle devices of a driver in thousandths, and the stranded part of them by cause."""

    idle: int = 0
    stranded: Mapping[StrandedCause, int] = {}


# The node is not meant for the pod.
ELSEWHERE: Final = (NOT_SELECTED, WRONG_NAME)
ANY_POD: Final = NodeRequirements(PodResources({}, {}))


def is_for_some(pod: TypicalPod, pools: Iterable[LocalPool]) -> bool:
    return any(
        matches_of(indexed, request.criteria).matched
        for request in pod.requests
        for pool in pools
        for indexed in pool.slices
    )


@lru_cache(maxsize=16)
def any_request(features: Features) -> TypicalPod:
    criteria = DeviceCriteria.of_any_device(features, capacity=() if features.consumable_capacity else None)
    return TypicalPod(ANY_POD, (TypicalRequest(criteria, 1),))


class _Offer(NamedTuple):
    """What a request finds in a slice: the devices that match, and those that no taint keeps it from."""

    matches: SliceMatches
    open: int


class DeviceAmounts(NamedTuple):
    """What is idle and usable of devices, whatever cpu there is, and what one copy of each request that fits takes."""

    idle: int
    repelled: int
    usable: int
    cards_idle: int
    cards_usable: int
    fitting: Mapping[TypicalRequest, int]


class IdleSurvey:
    """The devices of one driver in one place, and the pods that could use them.

    Places with equal devices in equal use share what is in `known`.
    """

    def __init__(
        self,
        view: ClusterView,
        features: Features,
        place: NodeFacts,
        pools: Sequence[LocalPool],
        pods: Sequence[TypicalPod],
        known: dict[Hashable, DeviceAmounts],
    ) -> None:
        self._known = known
        self._snapshot = view.snapshot
        self._features = features
        self._place = place
        self._pools = pools
        self._pods = pods
        self._requests = list(dict.fromkeys(request for pod in pods for request in pod.requests))
        # By device: how much is idle, and of that usable.
        self._idle: dict[tuple[IndexedSlice, int], int] = {}
        self._usable: dict[tuple[IndexedSlice, int], int] = {}
        self._cards_idle = self._cards_usable = 0

    def result(self, is_closed: bool, node: NodeState | None) -> IdleDevices:
        idle, repelled, usable, cards_idle, cards_usable, fitting = self._amounts()
        if is_closed:
            return IdleDevices(idle, {StrandedCause.TAINT: idle} if idle else {})
        runs = usable if node is None else min(usable, self._runs_with(node, fitting))
        stranded = {
            StrandedCause.TAINT: repelled,
            StrandedCause.COUNTERS: cards_idle - cards_usable,
            StrandedCause.REMAINDER: idle - cards_idle - repelled - (usable - cards_usable),
            StrandedCause.CPU: usable - runs,
        }
        return IdleDevices(idle, {cause: amount for cause, amount in stranded.items() if amount})

    def _amounts(self) -> DeviceAmounts:
        key = self._key()
        found = self._known.get(key) if key is not None else None
        if found is None:
            for pool in self._pools:
                self._look_at(pool)
            fitting = self._try_requests()
            repelled = sum(amount for device, amount in self._idle.items() if self._is_repelled(*device))
            found = DeviceAmounts(
                sum(self._idle.values()) + self._cards_idle,
                repelled,
                sum(self._usable.values()) + self._cards_usable,
                self._cards_idle,
                self._cards_usable,
                fitting,
            )
            if key is not None:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[key] = found
        return found

    def _key(self) -> Hashable | None:
        """Equal for places with the same answer; None if devices have more to compare than their content and use."""
        parts: list[Hashable] = [tuple(map(id, self._pods))]
        for each in self._pools:
            usage = self._snapshot.usage.get(each.pool.pool_id)
            for indexed in each.slices:
                if (
                    indexed.tainted
                    or indexed.counting
                    or indexed.gated
                    or indexed.binding
                    or indexed.selects_per_device
                ):
                    return None
                if next(indexed.taints_from(self._snapshot.rules), None) is not None:
                    return None
                for bit, device in enumerate(indexed.devices):
                    used = usage.of(device.name) if usage is not None else FREE
                    consumed = tuple(used.consumed.items()) if used.shares else ()
                    parts.append((indexed.shape(bit), bool(used.dedicated), bool(used.shares), consumed))
        return tuple(parts)

    def _look_at(self, each: LocalPool) -> None:
        usage = self._snapshot.usage.get(each.pool.pool_id)
        is_counting = False
        for indexed in each.slices:
            is_counting = is_counting or bool(indexed.counting)
            here = indexed.devices_for(self._place)[0] & ~indexed.counting
            for bit in bits_of(here):
                device = indexed.devices[bit]
                used = usage.of(device.name) if usage is not None else FREE
                amount = _idle_amount(indexed, bit, used, self._features)
                if amount:
                    self._idle[indexed, bit] = amount
        if is_counting:
            self._look_at_cards(each)

    def _look_at_cards(self, each: LocalPool) -> None:
        usage = self._snapshot.usage.get(each.pool.pool_id)
        totals = each.pool.layout.counters
        left = totals if usage is None else each.pool.slices.counters_left(each.pool.layout, usage)
        sets: dict[str, list[tuple[int, int]]] = {}
        for counter_id, total in totals.items():
            if total > 0:
                sets.setdefault(counter_id.counter_set, []).append((max(left[counter_id], 0), total))
        self._cards_idle += sum(_mean(parts) for parts in sets.values())
        free = [
            (indexed, bit)
            for indexed in each.slices
            for bit in bits_of(indexed.counting & indexed.devices_for(self._place)[0] & self._openings(indexed))
            if usage is None or usage.of(indexed.devices[bit].name).is_free
        ]
        drawn = PoolAvailability(self._snapshot, self._place, each.pool, self._features).drawn_together(free)
        for name, parts in sets.items():
            mine = [
                (drawn.get(counter_id, 0), totals[counter_id])
                for counter_id in totals
                if counter_id.counter_set == name and totals[counter_id] > 0
            ]
            self._cards_usable += min(_mean(mine), _mean(parts))

    # --- Requests -------------------------------------------------------------------------------------------------

    def _offer(self, indexed: IndexedSlice, request: TypicalRequest) -> _Offer:
        matches = matches_of(indexed, request.criteria)
        barred, tolerations = matches.barred, request.criteria.tolerations
        if self._features.taint_rules and tolerations is not None:
            for mask, taint in indexed.taints_from(self._snapshot.rules):
                if repels(taint, tolerations):
                    barred |= mask
        return _Offer(matches, matches.matched & ~barred)

    def _openings(self, indexed: IndexedSlice) -> int:
        found = 0
        for request in self._requests:
            found |= self._offer(indexed, request).open
        return found

    def _is_repelled(self, indexed: IndexedSlice, bit: int) -> bool:
        """True if requests are for such a device, and a taint keeps all of them from it."""
        offers = [self._offer(indexed, request) for request in self._requests]
        return any(each.matches.matched >> bit & 1 for each in offers) and not any(
            each.open >> bit & 1 for each in offers
        )

    def _try_requests(self) -> dict[TypicalRequest, int]:
        """Notes for each device what the best request can use of it; returns what one copy of each request takes."""
        fitting: dict[TypicalRequest, int] = {}
        offers = {
            (indexed, request): self._offer(indexed, request) for indexed, _ in self._idle for request in self._requests
        }
        for request in self._requests:
            copies = size = 0
            used: list[tuple[tuple[IndexedSlice, int], int]] = []
            for (indexed, bit), idle in self._idle.items():
                offer = offers[indexed, request]
                if not offer.open >> bit & 1:
                    continue
                each, number, amount = self._use(indexed, bit, offer, idle)
                if number:
                    copies, size = copies + number, max(size, each)
                    used.append(((indexed, bit), amount))
            if copies >= request.count and used:
                fitting[request] = size * request.count
                for device, amount in used:
                    self._usable[device] = max(self._usable.get(device, 0), amount)
            if (drawn := self._share_of_card(request)) is not None:
                fitting[request] = max(fitting.get(request, 0), drawn * request.count)
        return fitting

    def _use(self, indexed: IndexedSlice, bit: int, offer: _Offer, idle: int) -> tuple[int, int, int]:
        """What one copy takes of the device, how many copies fit, and what they take together."""
        device = indexed.devices[bit]
        if not (device.allow_multiple_allocations and self._features.consumable_capacity):
            return WHOLE, 1, idle
        usage = self._snapshot.usage.get(indexed.pool_id)
        consumed = usage.of(device.name).consumed if usage is not None else {}
        charged = [
            (nanos, capacity.value.nanos, capacity.value.nanos - consumed.get(name, 0))
            for (name, capacity), nanos in zip(device.capacity.items(), offer.matches.charges[bit].nanos, strict=False)
            if nanos > 0 and capacity.value.nanos > 0
        ]
        if not charged:
            return 0, WHOLE, idle
        copies = min(max(left, 0) // nanos for nanos, _, left in charged)
        size = max(WHOLE * nanos // value for nanos, value, _ in charged)
        return size, copies, min(idle, max(WHOLE * copies * nanos // value for nanos, value, _ in charged))

    def _share_of_card(self, request: TypicalRequest) -> int | None:
        """The part of a card that the smallest partition takes which the request can get; None if there is none."""
        found: int | None = None
        for each in self._pools:
            totals = each.pool.layout.counters
            sizes = Counter(counter_id.counter_set for counter_id, total in totals.items() if total > 0)
            for indexed in each.slices:
                if not indexed.counting:
                    continue
                for bit in bits_of(self._offer(indexed, request).open & indexed.counting):
                    part = sum(
                        WHOLE * nanos // (totals[key] * sizes[key.counter_set])
                        for key, nanos in indexed.draws[bit]
                        if totals.get(key, 0) > 0
                    )
                    found = part if found is None else min(found, part)
        return found

    def _runs_with(self, node: NodeState, fitting: Mapping[TypicalRequest, int]) -> int:
        """How much of the devices the cpu, memory and pods that are left suffice for, with the pod that uses them best."""
        most = 0
        for pod in self._pods:
            sizes = [fitting[request] for request in pod.requests if request in fitting]
            if not sizes:
                continue
            needs = pod.node.resources.amounts
            copies = min(
                (max(node.free.get(name, 0), 0) // nanos for name, nanos in needs.items() if nanos > 0), default=None
            )
            # A pod that asks for nothing, of nodes or of devices, leaves nothing over.
            if copies is None or (copies and not max(sizes)):
                return WHOLE * WHOLE * WHOLE
            most = max(most, copies * max(sizes))
        return most


def _idle_amount(indexed: IndexedSlice, bit: int, used: DeviceUsage, features: Features) -> int:
    if used.dedicated:
        return 0
    if not used.shares:
        return WHOLE
    device = indexed.devices[bit]
    if not (device.allow_multiple_allocations and features.consumable_capacity):
        return 0
    parts = [
        -(-WHOLE * used.consumed.get(name, 0) // capacity.value.nanos)
        for name, capacity in device.capacity.items()
        if capacity.value.nanos > 0
    ]
    return max(WHOLE - max(parts, default=0), 0)


def _mean(parts: Sequence[tuple[int, int]]) -> int:
    """The mean of the fractions, in thousandths."""
    return sum(WHOLE * part // total for part, total in parts) // len(parts) if parts else 0
