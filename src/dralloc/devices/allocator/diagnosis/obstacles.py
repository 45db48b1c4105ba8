"""What a funnel comes down to: the one hurdle that leaves an alternative too few devices, as a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dralloc.devices.allocator.candidate_devices import gate_off, matches_of
from dralloc.devices.allocator.consumable_capacity import charge_for
from dralloc.devices.allocator.diagnosis.device_funnel import Drop, Funnel, Hurdle, Spot, is_selection, spots
from dralloc.devices.allocator.diagnosis.device_survey import Survey
from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonCause, text_of_loss
from dralloc.devices.allocator.headroom import Room
from dralloc.devices.allocator.outcome import RESULTS_MAX
from dralloc.devices.allocator.requests import Alternative
from dralloc.devices.counters import CounterId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.share_terms import RefusalCause, capacities_of
from dralloc.devices.taints import text_of_taint
from dralloc.primitives.phrases import counted
from dralloc.primitives.quantity import Quantity, quantity_like


def obstacle(survey: Survey, node: NodeFacts, funnel: Funnel) -> Reason | None:
    """Why the alternative cannot be served on the node, each device taken by itself; None where there are enough."""
    alternative = funnel.alternative
    if alternative.count > RESULTS_MAX and not alternative.takes_all:
        return _reason(funnel, ReasonCause.LIMIT, asked=str(alternative.count))
    if funnel.left_count >= funnel.wanted:
        return _total(survey, funnel) if alternative.is_aggregated else None
    drop = funnel.breaking
    if drop is None:
        return _reason(funnel, ReasonCause.NO_DEVICES, lost=funnel.seen_count)
    reason = describe(survey, node, funnel, drop)
    if is_selection(drop.hurdle):
        return reason
    others = (other for other in funnel.unavailable if other is not drop)
    also = ", ".join(
        f"{counted(other.count, 'device')}: {text_of_loss(describe(survey, node, funnel, other))}" for other in others
    )
    return replace(reason, also=also, lost_at_all=sum(each.count for each in funnel.unavailable))


def describe(survey: Survey, node: NodeFacts, funnel: Funnel, drop: Drop) -> Reason:
    """Why the devices that are lost at one hurdle are."""
    return _DESCRIPTIONS[drop.hurdle](_Loss(survey, node, funnel, drop))


def _reason(funnel: Funnel, cause: ReasonCause, subject: str = "", **details: Any) -> Reason:
    alternative = funnel.alternative
    return Reason(
        cause=cause,
        subject=subject,
        claim=alternative.claim,
        request=alternative.name,
        wanted=funnel.wanted,
        takes_all=alternative.takes_all,
        left=funnel.left_count,
        **details,
    )


@dataclass(frozen=True, slots=True)
class _Loss:
    """The devices that are lost at one hurdle, and where."""

    survey: Survey
    node: NodeFacts
    funnel: Funnel
    drop: Drop

    @property
    def alternative(self) -> Alternative:
        return self.funnel.alternative

    def spots(self) -> Iterator[Spot]:
        return spots(self.drop.devices)

    def reason(self, cause: ReasonCause, subject: str = "", **details: Any) -> Reason:
        return _reason(self.funnel, cause, subject, lost=self.drop.count, **details)


# --- What devices are, and what has become of them --------------------------------------------------------------------


def _pool(loss: _Loss) -> Reason:
    unready = loss.survey.unready_pools(loss.node)
    return loss.reason(ReasonCause.POOL, unready[0].fault, example=str(unready[0].pool_id))


def _fault(loss: _Loss) -> Reason:
    spot = next(loss.spots())
    fault = matches_of(spot.slice, loss.alternative.criteria).faults[spot.bit]
    return loss.reason(ReasonCause.FAULT, fault.message, example=str(spot.device_id))


def _taint(loss: _Loss) -> Reason:
    taints = Counter(
        text_of_taint(taint) for spot in loss.spots() for taint in loss.survey.repelling(spot, loss.alternative)
    )
    return loss.reason(ReasonCause.TAINT, taints.most_common(1)[0][0])


def _allocations(loss: _Loss) -> Reason:
    limits = loss.alternative.allocations
    assert limits is not None, "only a condition on allocations is a hurdle"
    least = f"at least {limits.min}" if limits.min else ""
    most = f"at most {limits.max}" if limits.max is not None else ""
    return loss.reason(ReasonCause.ALLOCATIONS, " and ".join(filter(None, (least, most))))


# --- Amounts ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Shortage:
    """Devices that lack the same: how many they are, and the one that has the most."""

    asked: str
    count: int = 0
    takes: str = ""
    most: Quantity | None = None
    example: str = ""


class _Shortages:
    """What each device lacks, counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[ReasonCause, str], _Shortage] = {}

    def add(self, cause: ReasonCause, subject: str, asked: Quantity | None, **best: Any) -> None:
        shortage = self._found.setdefault((cause, subject), _Shortage("" if asked is None else str(asked)))
        shortage.count += 1
        most: Quantity | None = best.get("most")
        if most is not None and (shortage.most is None or most > shortage.most):
            shortage.most, shortage.takes, shortage.example = most, best.get("takes", ""), best["example"]

    def reason(self, loss: _Loss) -> Reason:
        """What most of the devices lack."""
        (cause, subject), worst = max(self._found.items(), key=lambda entry: entry[1].count)
        return loss.reason(cause, subject, asked=worst.asked, takes=worst.takes, most=worst.most, example=worst.example)

    def __bool__(self) -> bool:
        return bool(self._found)


def _size(loss: _Loss) -> Reason:
    shortages = _Shortages()
    for spot in loss.spots():
        _add_misfit(shortages, loss, spot)
    return shortages.reason(loss)


def _add_misfit(shortages: _Shortages, loss: _Loss, spot: Spot) -> None:
    """Which of the device's capacities, were it empty, does not do."""
    asked, limits = loss.alternative.criteria.asked or {}, loss.alternative.criteria.limits
    capacities = capacities_of(spot.device)
    missing = next((name for name in asked if name not in capacities), None)
    if missing is not None:
        shortages.add(ReasonCause.NO_CAPACITY, missing, asked[missing])
        return
    fractional = loss.survey.features.fractional_ranges
    for name, capacity in capacities.items():
        if loss.alternative.is_aggregated and name in asked:
            continue
        wanted = {name: asked[name]} if name in asked else {}
        if isinstance(
            charge_for({name: capacity}, wanted, fractional_ranges=fractional, skips_negative_amounts=True), str
        ):
            example = str(spot.device_id)
            if name in asked and asked[name] > capacity.value:
                shortages.add(ReasonCause.SIZE, name, asked[name], most=capacity.value, example=example)
            else:
                room = Room({name: capacity}, (capacity.value.nanos,), fractional_ranges=fractional)
                most = room.largest_request(name)
                shortages.add(ReasonCause.POLICY, name, asked.get(name), most=most, example=example)
            return
        if name in limits and limits[name] > capacity.value:
            example = str(spot.device_id)
            shortages.add(ReasonCause.CAPACITY_LIMIT, name, limits[name], most=capacity.value, example=example)
            return


def _total(survey: Survey, funnel: Funnel) -> Reason | None:
    """Which capacity the devices that are left do not have together; None if they have each."""
    alternative = funnel.alternative
    for name, total in (alternative.criteria.asked or {}).items():
        gives = sorted((gift_of(survey, spot, name) for spot in spots(funnel.left)), reverse=True)
        most = sum(gives[: alternative.count])
        if most < total.nanos:
            devices = min(alternative.count, len(gives))
            reason = _reason(funnel, ReasonCause.TOTAL, name, asked=str(total), most=quantity_like(total, most))
            return replace(reason, wanted=devices, left=devices)
    return None


def gift_of(survey: Survey, spot: Spot, name: str) -> int:
    """The most that a device gives of a capacity that several have together, in nanos."""
    capacity = capacities_of(spot.device)[name]
    policy = capacity.request_policy
    if not spot.device.allow_multiple_allocations or (policy is not None and policy.zero_consumption):
        return capacity.value.nanos
    most = Room.of(spot.device, survey.usage(spot), survey.features).largest_request(name)
    return 0 if most is None else most.nanos


def _capacity(loss: _Loss) -> Reason:
    criteria = loss.alternative.criteria
    asked = criteria.asked or {}
    shortages = _Shortages()
    for spot in loss.spots():
        charge = matches_of(spot.slice, criteria).charges[spot.bit]
        amounts = dict(zip(spot.device.capacity, charge.amounts, strict=True))
        free = dict(zip(spot.device.capacity, loss.survey.free(spot), strict=True))
        for name, (cause, needed) in loss.survey.shortages(spot, charge):
            value = spot.device.capacity[name].value
            take = amounts[name]
            if take is None or take.nanos != needed:
                take = quantity_like(value, needed)
            is_short = cause is RefusalCause.SHORT
            shortages.add(
                _CAUSES[cause],
                name,
                asked.get(name),
                most=quantity_like(value, free[name] if is_short else 0),
                takes="" if asked.get(name) == take else str(take),
                example=str(spot.device_id),
            )
    return shortages.reason(loss)


_CAUSES: Final = {
    RefusalCause.SHORT: ReasonCause.CAPACITY,
    RefusalCause.NOT_CONSUMABLE: ReasonCause.NOT_CONSUMABLE,
    RefusalCause.DIVIDED: ReasonCause.DIVIDED,
}


def _feature(loss: _Loss) -> Reason:
    criteria = loss.alternative.criteria
    gates = Counter(gate for spot in loss.spots() if (gate := gate_off(spot.slice, spot.bit, criteria)) is not None)
    return loss.reason(ReasonCause.FEATURE_OFF, gates.most_common(1)[0][0])


def _counters(loss: _Loss) -> Reason:
    survey = loss.survey
    if not survey.features.partitionable_devices:
        return loss.reason(ReasonCause.PARTITIONS_OFF)
    pools = {pool.pool_id: pool for pool in survey.view(loss.node).pools}
    shortages = _Shortages()
    for spot in loss.spots():
        left = survey.counters_left(pools[spot.slice.pool_id])
        overdrawn = next((counter_id for counter_id, amount in left.items() if amount < 0), None)
        if overdrawn is not None:
            return loss.reason(
                ReasonCause.OVERDRAWN, overdrawn.counter, example=f"{spot.slice.pool_id} {overdrawn.counter_set}"
            )
        for use in spot.device.consumes_counters:
            for name, counter in use.counters.items():
                have = left[CounterId(use.counter_set, name)]
                if have < counter.value.nanos:
                    shortages.add(
                        ReasonCause.COUNTERS,
                        name,
                        None,
                        most=quantity_like(counter.value, have),
                        takes=str(counter.value),
                        example=f"{spot.slice.pool_id} {use.counter_set}",
                    )
    return shortages.reason(loss)


_DESCRIPTIONS: Final[Mapping[Hurdle, Callable[[_Loss], Reason]]] = {
    Hurdle.POOL: _pool,
    Hurdle.BINDING_CONDITIONS: lambda loss: loss.reason(ReasonCause.BINDING_CONDITIONS),
    Hurdle.CLASS_SELECTOR: lambda loss: loss.reason(
        ReasonCause.CLASS_SELECTOR, loss.alternative.device_class.metadata.name
    ),
    Hurdle.CLAIM_SELECTOR: lambda loss: loss.reason(
        ReasonCause.CLAIM_SELECTOR, loss.alternative.criteria.request_selectors[loss.drop.position]
    ),
    Hurdle.FAULT: _fault,
    Hurdle.SIZE: _size,
    Hurdle.FEATURE: _feature,
    Hurdle.IN_USE: lambda loss: loss.reason(ReasonCause.IN_USE),
    Hurdle.ALLOCATIONS: _allocations,
    Hurdle.CAPACITY: _capacity,
    Hurdle.COUNTERS: _counters,
    Hurdle.TAINT: _taint,
    Hurdle.NODE_OPERATIONS: lambda loss: loss.reason(ReasonCause.NODE_OPERATIONS),
    Hurdle.CONSTRAINT: lambda loss: loss.reason(
        ReasonCause.NO_ATTRIBUTE, loss.alternative.constraints[loss.drop.position].label
    ),
}
