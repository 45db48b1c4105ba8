"""Why these devices: which devices come before each of them in the node's order, and why they were skipped.

The allocator takes the first solution in a fixed order, so "why this device" means "why none before it". The picks are
repeated one by one, and each device in between is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dralloc.answers.explanation.situation import Situation
from dralloc.devices.allocator.attribute_constraints import Values
from dralloc.devices.allocator.candidate_devices import matches_of
from dralloc.devices.allocator.diagnosis.claim_edits import Slot, slots, with_alternative_only
from dralloc.devices.allocator.diagnosis.device_funnel import Devices, Spot, spots
from dralloc.devices.allocator.diagnosis.device_survey import Survey
from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.diagnosis.obstacles import describe
from dralloc.devices.allocator.diagnosis.reasons import text_of_loss
from dralloc.devices.allocator.outcome import Allocated, DeviceAllocation
from dralloc.devices.allocator.requests import Alternative
from dralloc.devices.counters import CounterId
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.devices.slices import IndexedSlice
from dralloc.devices.snapshot import Strip
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import FIRST_FIT
from dralloc.primitives.quantity import Quantity


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Devices that come before the chosen one, and why they were skipped."""

    count: int
    why: str
    example: DeviceId


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    claim_id: ClaimId
    request: RequestName
    device_id: DeviceId
    # The consumed capacity of a share; None for a whole device.
    consumed: Mapping[str, Quantity] | None
    passed_over: tuple[PassedOver, ...]
    # The devicePreference that ordered the devices.
    preference: str = FIRST_FIT
    # True if it is one of as few devices as have a capacity together.
    is_together: bool = False


@dataclass(frozen=True, slots=True)
class RefusedAlternative:
    """An alternative that is preferred to the chosen one and does not fit."""

    claim_id: ClaimId
    request: RequestName
    why: str


@dataclass(frozen=True, slots=True)
class ExplainedChoice:
    node: str
    score: int
    devices: tuple[ChosenDevice, ...]
    refused: tuple[RefusedAlternative, ...]


def explain_choice(situation: Situation, allocated: Allocated) -> ExplainedChoice:
    return _Retelling(situation, allocated).choice()


@dataclass(slots=True)
class _Taken:
    """What the picks so far use."""

    # Whole devices, with the alternative that uses them.
    devices: dict[DeviceId, Alternative] = field(default_factory=dict)
    amounts: dict[DeviceId, tuple[int, ...]] = field(default_factory=dict)
    counters: dict[tuple[str, CounterId], int] = field(default_factory=dict)
    states: dict[int, Values] = field(default_factory=dict)


class _Retelling:
    def __init__(self, situation: Situation, allocated: Allocated) -> None:
        self._situation = situation
        self._allocated = allocated
        self._demand = situation.demand
        self._survey = Survey(self._demand, situation.snapshot)
        view = self._survey.view(situation.node)
        self._strips: dict[IndexedSlice, Strip] = {strip.slice: strip for strip in view.strips}
        self._pools = {pool.pool_id: pool for pool in view.pools}
        self._taken = _Taken()

    def choice(self) -> ExplainedChoice:
        devices: list[ChosenDevice] = []
        by_name = {(alternative.claim, alternative.name): alternative for _, alternative in slots(self._demand)}
        for number, allocation in enumerate(self._allocated.claims):
            before: dict[RequestName, int] = {}
            for picked in allocation.devices:
                alternative = by_name[number, picked.request]
                spot, position = self._find(picked.device)
                after = before.get(picked.request, -1)
                is_in_order = alternative.preference == FIRST_FIT and not alternative.is_aggregated
                is_first_fit = is_in_order and not alternative.takes_all
                passed = tuple(self._passed_over(alternative, after, position)) if is_first_fit else ()
                devices.append(
                    ChosenDevice(
                        self._situation.claim_ids[number],
                        picked.request,
                        spot.device_id,
                        picked.consumed_capacity if picked.is_share else None,
                        passed,
                        alternative.preference,
                        alternative.is_aggregated,
                    )
                )
                self._take(alternative, spot, picked)
                before[picked.request] = position
        refused = tuple(self._refused())
        return ExplainedChoice(self._situation.node.name, self._allocated.score, tuple(devices), refused)

    def _find(self, device_id: DeviceId) -> tuple[Spot, int]:
        for indexed, strip in self._strips.items():
            bit = indexed.bit_of.get(device_id.device) if indexed.pool_id == device_id.pool_id else None
            if bit is not None:
                return Spot(indexed, bit), strip.offset + bit
        raise AssertionError(f"{device_id} was given and is not there")

    # --- Devices --------------------------------------------------------------------------------------------------------

    def _passed_over(self, alternative: Alternative, after: int, position: int) -> Iterator[PassedOver]:
        """The devices between two positions, by the reason why they do not fit."""
        node = self._situation.node
        funnel = self._survey.funnel(node, alternative)
        for drop in funnel.drops:
            between = self._between(drop.devices, after, position)
            if between:
                why = text_of_loss(describe(self._survey, node, funnel, replace(drop, devices=between)))
                found = list(spots(between))
                yield PassedOver(len(found), why, found[0].device_id)
        reasons: dict[str, list[Spot]] = {}
        for spot in spots(self._between(funnel.left, after, position)):
            reasons.setdefault(self._why_not(alternative, spot), []).append(spot)
        for why, found in reasons.items():
            yield PassedOver(len(found), why, found[0].device_id)

    def _between(self, devices: Sequence[Devices], after: int, position: int) -> tuple[Devices, ...]:
        found = []
        for indexed, mask in devices:
            strip = self._strips.get(indexed)
            if strip is None:
                continue
            first, end = max(0, after + 1 - strip.offset), max(0, position - strip.offset)
            between = mask >> first << first & ((1 << min(end, len(indexed.devices))) - 1)
            if between:
                found.append(Devices(indexed, between))
        return tuple(found)

    def _why_not(self, alternative: Alternative, spot: Spot) -> str:
        """Why a device that fits the request was not chosen."""
        taken = self._taken
        other = taken.devices.get(spot.device_id)
        if other is not None and (not alternative.is_admin or other.claim == alternative.claim):
            return f"taken by request {other.name}"
        for constraint in alternative.constraints:
            values = constraint.known_values_at(spot.slice, spot.bit) or frozenset()
            if constraint.after(taken.states.get(constraint.number), values) is None:
                verb = "differs from" if constraint.wants_equal else "equals"
                return f"its {constraint.label} {verb} that of devices taken before"
        amounts = taken.amounts.get(spot.device_id)
        if amounts is not None and self._is_short(alternative, spot, amounts):
            return "earlier requests left too little of it"
        if self._is_dry(spot):
            return "earlier requests left too little of the pool's counters"
        return "later requests would not fit"

    def _is_short(self, alternative: Alternative, spot: Spot, taken: tuple[int, ...]) -> bool:
        charge = matches_of(spot.slice, alternative.criteria).charges[spot.bit]
        amounts = zip(self._survey.free(spot), taken, charge.nanos, strict=True)
        return any(free - gone < take for free, gone, take in amounts)

    def _is_dry(self, spot: Spot) -> bool:
        if spot.device_id in self._taken.amounts or not spot.device.consumes_counters:
            return False
        left = self._survey.counters_left(self._pools[spot.slice.pool_id])
        pool = str(spot.slice.pool_id)
        return any(
            left[counter_id] - self._taken.counters.get((pool, counter_id), 0) < amount
            for counter_id, amount in spot.slice.draws[spot.bit]
        )

    def _take(self, alternative: Alternative, spot: Spot, picked: DeviceAllocation) -> None:
        taken, device_id = self._taken, spot.device_id
        consumed = [picked.consumed_capacity.get(name, Quantity.ZERO).nanos for name in spot.device.capacity]
        is_share = self._demand.features.consumable_capacity and spot.device.allow_multiple_allocations
        if device_id not in taken.amounts and not (is_share and self._survey.usage(spot).shares):
            for counter_id, amount in spot.slice.draws[spot.bit]:
                key = (str(spot.slice.pool_id), counter_id)
                taken.counters[key] = taken.counters.get(key, 0) + amount
        if is_share:
            before = taken.amounts.get(device_id, (0,) * len(consumed))
            taken.amounts[device_id] = tuple(map(sum, zip(before, consumed, strict=True)))
        else:
            taken.devices[device_id] = alternative
        for constraint in alternative.constraints:
            values = constraint.known_values_at(spot.slice, spot.bit) or frozenset()
            state = constraint.after(taken.states.get(constraint.number), values)
            assert state is not None, f"{device_id} was given although a constraint refuses it"
            taken.states[constraint.number] = state

    # --- Alternatives ---------------------------------------------------------------------------------------------------

    def _refused(self) -> Iterator[RefusedAlternative]:
        """The alternatives that are preferred to the chosen ones."""
        chosen = {
            (number, picked.request)
            for number, allocation in enumerate(self._allocated.claims)
            for picked in allocation.devices
        }
        decided: set[tuple[int, int]] = set()
        for slot, alternative in slots(self._demand):
            if (alternative.claim, alternative.name) in chosen:
                decided.add(slot[:2])
            elif slot[:2] not in decided:
                claim_id = self._situation.claim_ids[alternative.claim]
                yield RefusedAlternative(claim_id, alternative.name, self._why_refused(slot))

    def _why_refused(self, slot: Slot) -> str:
        alone = replace(self._situation, claims=with_alternative_only(self._situation.claims, slot))
        outcome = alone.outcome()
        if isinstance(outcome, Allocated):
            return "fits only if an earlier request takes a less preferred alternative"
        return str(Diagnoser(alone.demand, alone.snapshot, alone.claim_ids).reason(alone.node, outcome))
