"""Single changes of claims that could make them fit.

Changes that users can make themselves rank before changes of the cluster (`cluster_changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as change
from fractions import Fraction

from dralloc.allocator.diagnosis.claim_edits import Slot, requests_of, with_requests_only, without_constraint
from dralloc.allocator.diagnosis.reasons import counted, shortened
from dralloc.api import resource_v1
from dralloc.devices.identity import ClaimId
from dralloc.devices.taints import text_of_taint
from dralloc.primitives.quantity import Quantity
from dralloc.whatif.explanation.situation import Situation


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change, with its text as an instruction. The smaller its `distance`, the less it changes."""

    # The name in JSON output.
    kind: str
    # From corrections that cost nothing to changes that only others can make.
    rank: int
    text: str
    apply: Callable[[Situation], Situation]
    # How much is changed, to compare changes of the same rank.
    size: Fraction = Fraction(0)

    @property
    def distance(self) -> tuple[int, Fraction]:
        return self.rank, self.size


# --- What the claim asks for --------------------------------------------------------------------------------------------


def ask_less(slot: Slot, request: str, capacity: str, amount: Quantity, was: Quantity | None) -> Change:
    """Requests less of a capacity; `was` is None if nothing was requested, so that a default or all of it was consumed."""
    instead = f"{amount} of {capacity} instead of {was}" if was is not None else f"at most {amount} of {capacity}"
    return Change(
        kind="AskLess",
        rank=2,
        size=1 - Fraction(amount.nanos, was.nanos) if was else Fraction(1),
        text=f"ask for {instead} in request {request}",
        apply=lambda situation: _with_capacity(situation, slot, {**_asked(situation, slot), capacity: amount}),
    )


def ask_for_other(slot: Slot, request: str, capacity: str, name: str) -> Change:
    """Requests a capacity by another name."""

    def apply(situation: Situation) -> Situation:
        asked = _asked(situation, slot).items()
        return _with_capacity(situation, slot, {(name if key == capacity else key): amount for key, amount in asked})

    text = f"ask for the capacity {name} instead of {capacity} in request {request}"
    return Change(kind="AskForOther", rank=0, text=text, apply=apply)


def ask_nothing(slot: Slot, request: str, capacity: str, default: Quantity | None = None) -> Change:
    """Omits a capacity from the request; `default` is the amount that is consumed then, if devices agree on it."""

    def apply(situation: Situation) -> Situation:
        asked = _asked(situation, slot).items()
        return _with_capacity(situation, slot, {key: amount for key, amount in asked if key != capacity})

    applies = f" (the default, {default}, applies)" if default is not None else ""
    return Change(kind="AskNothing", rank=6, text=f"omit {capacity} in request {request}{applies}", apply=apply)


def _asked(situation: Situation, slot: Slot) -> Mapping[str, Quantity]:
    asked = slot.read(situation.claims).capacity
    return asked.requests if asked is not None else {}


def _with_capacity(situation: Situation, slot: Slot, requests: dict[str, Quantity]) -> Situation:
    capacity = resource_v1.CapacityRequirements(requests=requests) if requests else None
    return change(situation, claims=slot.write(situation.claims, capacity=capacity))


def take_fewer(slot: Slot, request: str, count: int, was: int | None) -> Change:
    """Requests fewer devices; `was` is None for mode All."""

    def apply(situation: Situation) -> Situation:
        mode = resource_v1.EXACT_COUNT
        return change(situation, claims=slot.write(situation.claims, count=count, allocation_mode=mode))

    return Change(
        kind="TakeFewer",
        rank=3,
        size=1 - Fraction(count, was) if was else Fraction(1),
        text=f"ask for {counted(count, 'device')} instead of {'all' if was is None else was} in request {request}",
        apply=apply,
    )


def tolerate(slot: Slot, request: str, taints: tuple[resource_v1.DeviceTaint, ...]) -> Change:
    more = tuple(
        resource_v1.DeviceToleration(key=taint.key, operator=resource_v1.EQUAL, value=taint.value, effect=taint.effect)
        for taint in taints
    )

    def apply(situation: Situation) -> Situation:
        tolerations = (*slot.read(situation.claims).tolerations, *more)
        return change(situation, claims=slot.write(situation.claims, tolerations=tolerations))

    listed = " and ".join(map(text_of_taint, taints))
    text = f"tolerate the taint{'s' if len(taints) > 1 else ''} {listed} in request {request}"
    return Change(kind="Tolerate", rank=1, size=Fraction(len(taints)), text=text, apply=apply)


def guard_selector(slot: Slot, request: str, position: int, expression: str) -> Change:
    """Makes a selector of the request read an attribute only if the device has it."""
    return Change(
        kind="GuardSelector",
        rank=0,
        text=f"change the selector of request {request} to {expression}",
        apply=lambda situation: _with_selector(situation, slot, position, expression),
    )


def loosen_selector(slot: Slot, request: str, position: int, condition: str, rest: str = "") -> Change:
    """Removes a condition from a selector of the request; the whole selector if `rest` is empty."""
    return Change(
        kind="LoosenSelector",
        rank=4,
        size=Fraction(len(condition), len(condition) + len(rest)),
        text=f"remove the {'condition' if rest else 'selector'} {shortened(condition)} from request {request}",
        apply=lambda situation: _with_selector(situation, slot, position, rest),
    )


def _with_selector(situation: Situation, slot: Slot, position: int, expression: str) -> Situation:
    selectors = with_expression(slot.read(situation.claims).selectors, position, expression)
    return change(situation, claims=slot.write(situation.claims, selectors=selectors))


def drop_constraint(claim: int, claim_id: ClaimId, position: int, attribute: str) -> Change:
    return Change(
        kind="DropConstraint",
        rank=5,
        text=f"remove the constraint on {attribute} from claim {claim_id}",
        apply=lambda situation: change(situation, claims=without_constraint(situation.claims, claim, position)),
    )


def use_class(slot: Slot, request: str, device_class: str, was: str) -> Change:
    """Uses a class that exists in place of one that does not. Existing classes are chosen on purpose and are kept."""
    return Change(
        kind="UseClass",
        rank=0,
        text=f"use class {device_class} instead of {was} in request {request}",
        apply=lambda situation: change(situation, claims=slot.write(situation.claims, device_class_name=device_class)),
    )


def drop_request(claim: int, claim_id: ClaimId, position: int, request: str) -> Change:
    def apply(situation: Situation) -> Situation:
        count = len(requests_of(situation.claims[claim]))
        kept = [index for index in range(count) if index != position]
        return change(situation, claims=with_requests_only(situation.claims, claim, kept))

    return Change(kind="DropRequest", rank=8, text=f"remove request {request} from claim {claim_id}", apply=apply)


def with_expression(
    selectors: tuple[resource_v1.DeviceSelector, ...], position: int, expression: str
) -> tuple[resource_v1.DeviceSelector, ...]:
    """The selectors with another expression at the position; without that selector if the expression is empty."""
    cel = resource_v1.CELDeviceSelector(expression=expression)
    put = (resource_v1.DeviceSelector(cel=cel),) if expression else ()
    return (*selectors[:position], *put, *selectors[position + 1 :])
