"""Which changes are worth trying, according to the devices that the funnels of the requests lose."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dralloc.allocator.candidate_devices import MatchStage, matches_of
from dralloc.allocator.consumable_capacity import default_amount
from dralloc.allocator.diagnosis.claim_edits import Slot, slots
from dralloc.allocator.diagnosis.device_funnel import Funnel, Hurdle, Spot, spots
from dralloc.allocator.diagnosis.device_survey import Survey
from dralloc.allocator.headroom import largest_request
from dralloc.allocator.outcome import RESULTS_MAX
from dralloc.allocator.requests import Alternative
from dralloc.api.resource_v1 import DeviceTaint
from dralloc.cel.errors import CelError
from dralloc.primitives.quantity import Quantity
from dralloc.snapshot.pools import PoolStatus
from dralloc.snapshot.slices import DeviceShape
from dralloc.whatif.explanation import claim_changes, cluster_changes
from dralloc.whatif.explanation.claim_changes import Change
from dralloc.whatif.explanation.selector_parts import compiled, conditions, guarded, joined
from dralloc.whatif.explanation.situation import Situation
from dralloc.whatif.usage_report import holdings

# The limit for each kind of change of one request.
PROPOSALS_MAX: Final = 6
ADDED_MAX: Final = 8

# Changes of one kind, the smallest first: if one of them helps, those after it help, too.
Ladder = Sequence[Change]


def proposals(situation: Situation) -> Iterator[Ladder]:
    """Ladders of changes, those with small changes first."""
    proposer = _Proposer(situation)
    for propose in (
        proposer.repairs,
        proposer.tolerations,
        proposer.less_capacity,
        proposer.fewer_devices,
        proposer.looser_selectors,
        proposer.fewer_constraints,
        proposer.no_capacity,
        proposer.fewer_requests,
        proposer.releases,
        proposer.more_devices,
        proposer.complete_pools,
        proposer.features,
    ):
        yield from propose()


class _Proposer:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._demand = situation.demand
        self._survey = Survey(self._demand, situation.snapshot)
        self._view = self._survey.view(situation.node)
        self._requests = [
            (slot, alternative, self._survey.funnel(situation.node, alternative))
            for slot, alternative in slots(self._demand)
            if not alternative.fault
        ]

    def _called(self, alternative: Alternative) -> str:
        """The request, with its claim if there are several."""
        claim = f" of claim {self._situation.claim_ids[alternative.claim]}" if len(self._demand.claims) > 1 else ""
        return f"{alternative.name}{claim}"

    # --- Repairs --------------------------------------------------------------------------------------------------------

    def repairs(self) -> Iterator[Ladder]:
        yield from self._known_classes()
        for slot, alternative, funnel in self._requests:
            yield from self._guards(slot, alternative)
            yield from self._capacity_names(slot, alternative, funnel)

    def _known_classes(self) -> Iterator[Ladder]:
        for slot, alternative in slots(self._demand):
            wanted = slot.read(self._situation.claims).device_class_name
            if wanted and wanted not in self._situation.classes:
                for name in _close(wanted, self._situation.classes):
                    yield [claim_changes.use_class(slot, self._called(alternative), name, wanted)]

    def _guards(self, slot: Slot, alternative: Alternative) -> Iterator[Ladder]:
        """Selectors that fail on devices without an attribute, with a guard against that."""
        failing: dict[tuple[MatchStage, int], list[DeviceShape]] = {}
        for strip in self._view.strips:
            for bit, fault in matches_of(strip.slice, alternative.criteria).faults.items():
                if fault.stage is not MatchStage.CAPACITY:
                    failing.setdefault((fault.stage, fault.position), []).append(strip.slice.shape(bit))
        for (stage, position), shapes in failing.items():
            is_class = stage is MatchStage.CLASS_SELECTOR
            criteria = alternative.criteria
            expression = (criteria.class_selectors if is_class else criteria.request_selectors)[position]
            better = _guarded(expression, shapes)
            if better is None:
                continue
            if is_class:
                yield [cluster_changes.guard_class_selector(alternative.device_class.metadata.name, position, better)]
            else:
                yield [claim_changes.guard_selector(slot, self._called(alternative), position, better)]

    def _capacity_names(self, slot: Slot, alternative: Alternative, funnel: Funnel) -> Iterator[Ladder]:
        asked = alternative.criteria.asked or {}
        known = {name for spot in _lost_at(funnel, Hurdle.SIZE) for name in spot.device.capacity}
        for name in asked:
            for other in _close(name, known - asked.keys()) if name not in known else ():
                yield [claim_changes.ask_for_other(slot, self._called(alternative), name, other)]

    # --- Less -----------------------------------------------------------------------------------------------------------

    def tolerations(self) -> Iterator[Ladder]:
        for slot, alternative, funnel in self._requests:
            sets: Counter[tuple[DeviceTaint, ...]] = Counter(
                tuple(dict.fromkeys(self._survey.repelling(spot, alternative)))
                for spot in _lost_at(funnel, Hurdle.TAINT)
            )
            for taints, _ in sorted(sets.items(), key=lambda entry: (len(entry[0]), -entry[1]))[:PROPOSALS_MAX]:
                yield [claim_changes.tolerate(slot, self._called(alternative), taints)]

    def less_capacity(self) -> Iterator[Ladder]:
        if not self._demand.features.consumable_capacity:
            return
        for slot, alternative, funnel in self._requests:
            candidates = list(_sized(funnel))
            asked = alternative.criteria.asked or {}
            for name in dict.fromkeys((*asked, *(name for spot in candidates for name in spot.device.capacity))):
                was = asked.get(name)
                amounts = {amount for spot in candidates for amount in self._amounts(spot, alternative, name) if amount}
                less = sorted((each for each in amounts if was is None or each < was), reverse=True)
                yield [claim_changes.ask_less(slot, self._called(alternative), name, amount, was) for amount in less]

    def _amounts(self, spot: Spot, alternative: Alternative, name: str) -> Iterator[Quantity]:
        """The largest amounts that could be requested of the device, if none, one or all of the other requests use it, too."""
        capacities = spot.device.capacity
        if name not in capacities:
            return
        free = self._survey.free(spot)
        others = [
            charge.nanos
            for other in self._demand.alternatives
            if other is not alternative
            and (charge := matches_of(spot.slice, other.criteria).charges.get(spot.bit)) is not None
        ]
        together = tuple(map(sum, zip(*others, strict=True))) if others else ()
        for taken in {(0,) * len(free), *others, *((together,) if together else ())}:
            left = tuple(have - take for have, take in zip(free, taken, strict=True))
            fractional = self._demand.features.fractional_ranges
            if (amount := largest_request(capacities, name, left, fractional_ranges=fractional)) is not None:
                yield amount

    def fewer_devices(self) -> Iterator[Ladder]:
        for slot, alternative, funnel in self._requests:
            was = None if alternative.takes_all else alternative.count
            most = min(RESULTS_MAX, funnel.left_count if was is None else was - 1)
            yield [
                claim_changes.take_fewer(slot, self._called(alternative), count, was) for count in range(most, 0, -1)
            ]

    def looser_selectors(self) -> Iterator[Ladder]:
        for slot, alternative, _ in self._requests:
            for position, expression in enumerate(alternative.criteria.request_selectors):
                parts = conditions(expression)
                for index, part in enumerate(parts if len(parts) > 1 else ()):
                    rest = joined((*parts[:index], *parts[index + 1 :]))
                    yield [claim_changes.loosen_selector(slot, self._called(alternative), position, part, rest)]
                yield [claim_changes.loosen_selector(slot, self._called(alternative), position, expression)]

    def fewer_constraints(self) -> Iterator[Ladder]:
        for index, claim in enumerate(self._demand.claims):
            for position, constraint in enumerate(claim.devices.constraints):
                attribute = constraint.match_attribute or constraint.distinct_attribute or "nothing"
                yield [claim_changes.drop_constraint(index, self._situation.claim_ids[index], position, attribute)]

    def no_capacity(self) -> Iterator[Ladder]:
        for slot, alternative, _ in self._requests:
            for name in alternative.criteria.asked or ():
                yield [
                    claim_changes.ask_nothing(slot, self._called(alternative), name, self._default(alternative, name))
                ]

    def _default(self, alternative: Alternative, name: str) -> Quantity | None:
        """What is consumed of the capacity if a request omits it; None if matching devices differ in that."""
        funnel = self._survey.funnel(self._situation.node, alternative)
        found = {default_amount(spot.device.capacity[name]) for spot in _sized(funnel) if name in spot.device.capacity}
        return found.pop() if len(found) == 1 else None

    def fewer_requests(self) -> Iterator[Ladder]:
        for index, claim in enumerate(self._demand.claims):
            if len(claim.requests) > 1:
                for position, request in enumerate(claim.requests[:PROPOSALS_MAX]):
                    yield [
                        claim_changes.drop_request(index, self._situation.claim_ids[index], position, request.name.main)
                    ]

    # --- More -----------------------------------------------------------------------------------------------------------

    def releases(self) -> Iterator[Ladder]:
        """Claims that have the devices in question, those of the same namespace first."""
        held = holdings(self._situation.snapshot.claims.values())
        in_the_way = {
            holding.claim_id
            for spot in self._contested()
            for holding in held.get(spot.device_id, ())
            if not holding.is_admin
        }
        own = {claim_id.namespace for claim_id in self._situation.claim_ids}
        for claim_id in sorted(in_the_way, key=lambda found: (found.namespace not in own, found))[: 2 * PROPOSALS_MAX]:
            yield [cluster_changes.release_claim(claim_id)]

    def _contested(self) -> Iterator[Spot]:
        for _, _, funnel in self._requests:
            yield from _lost_at(funnel, Hurdle.IN_USE)
            yield from _lost_at(funnel, Hurdle.CAPACITY)
            short = {spot.slice.pool_id for spot in _lost_at(funnel, Hurdle.COUNTERS)}
            for strip in self._view.strips:
                if strip.slice.pool_id in short:
                    yield from (Spot(strip.slice, bit) for bit in range(len(strip.slice.devices)))
            yield from spots(funnel.left)

    def more_devices(self) -> Iterator[Ladder]:
        for _, _, funnel in self._requests:
            model = next((spot for spot in _worth_adding(funnel)), None)
            if model is not None:
                most = min(funnel.wanted, ADDED_MAX)
                yield [
                    cluster_changes.add_devices(model.slice.name, model.device_id, count)
                    for count in range(1, most + 1)
                ]

    def complete_pools(self) -> Iterator[Ladder]:
        for pool in self._view.pools:
            if pool.layout.status is PoolStatus.INCOMPLETE:
                yield [cluster_changes.complete_pool(pool.pool_id)]

    def features(self) -> Iterator[Ladder]:
        for feature in cluster_changes.GATE_OF_FEATURE:
            if not getattr(self._demand.features, feature):
                yield [cluster_changes.switch_on(feature)]


def _sized(funnel: Funnel) -> Iterator[Spot]:
    """The devices that would fit the request with another amount."""
    yield from spots(funnel.left)
    yield from _lost_at(funnel, Hurdle.CAPACITY)
    yield from _lost_at(funnel, Hurdle.SIZE)


def _lost_at(funnel: Funnel, hurdle: Hurdle) -> Iterator[Spot]:
    return (spot for drop in funnel.drops if drop.hurdle is hurdle for spot in spots(drop.devices))


def _worth_adding(funnel: Funnel) -> Iterator[Spot]:
    """Devices that would fit the request if they were free."""
    yield from _lost_at(funnel, Hurdle.IN_USE)
    yield from _lost_at(funnel, Hurdle.CAPACITY)
    yield from spots(funnel.left)


def _close(name: str, known: Iterable[str]) -> list[str]:
    """Similar names."""
    names = sorted(known)
    tail = name.rpartition("/")[2]
    same = [other for other in names if other.rpartition("/")[2] == tail]
    return list(dict.fromkeys((*same, *difflib.get_close_matches(name, names, n=PROPOSALS_MAX))))[:PROPOSALS_MAX]


def _guarded(expression: str, shapes: Sequence[DeviceShape]) -> str | None:
    """The expression with a guard for every attribute that it reads and that one of the devices lacks."""
    selector = compiled(expression)
    if selector is None:
        return None
    reads = selector.checked.reads
    try:
        views = [shape.view for shape in shapes]
        attributes = [
            (domain, name)
            for domain, name in sorted(reads.attributes)
            if any(name not in view.attributes.get(domain, {}) for view in views)
        ]
        capacities = [
            (domain, name)
            for domain, name in sorted(reads.capacity)
            if any(name not in view.capacity.get(domain, {}) for view in views)
        ]
    except CelError:
        return None
    return guarded(expression, attributes, capacities) if attributes or capacities else None
