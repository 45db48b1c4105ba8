"""Single changes of claims that could make them fit.

Changes that users can make themselves rank before changes of the cluster (`cluster_changes`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from dataclasses import replace as change
from fractions import Fraction
from typing import ClassVar

from dralloc.allocator.diagnosis.claim_edits import Slot, requests_of, with_requests_only, without_constraint
from dralloc.allocator.diagnosis.reasons import counted, shortened
from dralloc.api.resource_v1 import (
    EQUAL,
    EXACT_COUNT,
    CapacityRequirements,
    CELDeviceSelector,
    DeviceSelector,
    DeviceTaint,
    DeviceToleration,
)
from dralloc.devices.identity import ClaimId
from dralloc.devices.taints import text_of_taint
from dralloc.primitives.quantity import Quantity
from dralloc.whatif.explanation.situation import Situation


class Change(ABC):
    """One change. The smaller its `distance`, the less it changes."""

    __slots__ = ()

    # From corrections that cost nothing to changes that only others can make.
    rank: ClassVar[int]

    @abstractmethod
    def apply(self, situation: Situation) -> Situation: ...

    @property
    @abstractmethod
    def text(self) -> str:
        """The change as an instruction."""

    @property
    def size(self) -> Fraction:
        """How much is changed, to compare changes of the same rank."""
        return Fraction(0)

    @property
    def distance(self) -> tuple[int, Fraction]:
        return self.rank, self.size


# --- What the claim asks for --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskLess(Change):
    """Requests less of a capacity; `was` is None if nothing was requested, so that a default or all of it was consumed."""

    rank: ClassVar[int] = 2
    slot: Slot
    request: str
    capacity: str
    amount: Quantity
    was: Quantity | None

    @property
    def size(self) -> Fraction:
        return 1 - Fraction(self.amount.nanos, self.was.nanos) if self.was else Fraction(1)

    def apply(self, situation: Situation) -> Situation:
        asked = self.slot.read(situation.claims).capacity
        requests = {**(asked.requests if asked is not None else {}), self.capacity: self.amount}
        claims = self.slot.write(situation.claims, capacity=CapacityRequirements(requests=requests))
        return change(situation, claims=claims)

    @property
    def text(self) -> str:
        if self.was is None:
            return f"ask for at most {self.amount} of {self.capacity} in request {self.request}"
        return f"ask for {self.amount} of {self.capacity} instead of {self.was} in request {self.request}"


@dataclass(frozen=True, slots=True)
class AskForOther(Change):
    """Requests a capacity by another name."""

    rank: ClassVar[int] = 0
    slot: Slot
    request: str
    capacity: str
    name: str

    def apply(self, situation: Situation) -> Situation:
        asked = self.slot.read(situation.claims).capacity
        assert asked is not None, "a capacity is asked for"
        requests = {(self.name if name == self.capacity else name): amount for name, amount in asked.requests.items()}
        claims = self.slot.write(situation.claims, capacity=CapacityRequirements(requests=requests))
        return change(situation, claims=claims)

    @property
    def text(self) -> str:
        return f"ask for the capacity {self.name} instead of {self.capacity} in request {self.request}"


@dataclass(frozen=True, slots=True)
class AskNothing(Change):
    """Omits a capacity from the request; `default` is the amount that is consumed then, if devices agree on it."""

    rank: ClassVar[int] = 6
    slot: Slot
    request: str
    capacity: str
    default: Quantity | None = None

    def apply(self, situation: Situation) -> Situation:
        asked = self.slot.read(situation.claims).capacity
        assert asked is not None, "a capacity is asked for"
        requests = {name: amount for name, amount in asked.requests.items() if name != self.capacity}
        kept = CapacityRequirements(requests=requests) if requests else None
        return change(situation, claims=self.slot.write(situation.claims, capacity=kept))

    @property
    def text(self) -> str:
        applies = f" (the default, {self.default}, applies)" if self.default is not None else ""
        return f"omit {self.capacity} in request {self.request}{applies}"


@dataclass(frozen=True, slots=True)
class TakeFewer(Change):
    """Requests fewer devices; `was` is None for mode All."""

    rank: ClassVar[int] = 3
    slot: Slot
    request: str
    count: int
    was: int | None

    @property
    def size(self) -> Fraction:
        return 1 - Fraction(self.count, self.was) if self.was else Fraction(1)

    def apply(self, situation: Situation) -> Situation:
        claims = self.slot.write(situation.claims, count=self.count, allocation_mode=EXACT_COUNT)
        return change(situation, claims=claims)

    @property
    def text(self) -> str:
        was = "all" if self.was is None else self.was
        return f"ask for {counted(self.count, 'device')} instead of {was} in request {self.request}"


@dataclass(frozen=True, slots=True)
class Tolerate(Change):
    rank: ClassVar[int] = 1
    slot: Slot
    request: str
    taints: tuple[DeviceTaint, ...]

    @property
    def size(self) -> Fraction:
        return Fraction(len(self.taints))

    def apply(self, situation: Situation) -> Situation:
        more = tuple(
            DeviceToleration(key=taint.key, operator=EQUAL, value=taint.value, effect=taint.effect)
            for taint in self.taints
        )
        tolerations = (*self.slot.read(situation.claims).tolerations, *more)
        return change(situation, claims=self.slot.write(situation.claims, tolerations=tolerations))

    @property
    def text(self) -> str:
        taints = " and ".join(map(text_of_taint, self.taints))
        return f"tolerate the taint{'s' if len(self.taints) > 1 else ''} {taints} in request {self.request}"


@dataclass(frozen=True, slots=True)
class GuardSelector(Change):
    """Makes a selector of the request read an attribute only if the device has it."""

    rank: ClassVar[int] = 0
    slot: Slot
    request: str
    position: int
    expression: str

    def apply(self, situation: Situation) -> Situation:
        selectors = self.slot.read(situation.claims).selectors
        guarded = with_expression(selectors, self.position, self.expression)
        return change(situation, claims=self.slot.write(situation.claims, selectors=guarded))

    @property
    def text(self) -> str:
        return f"change the selector of request {self.request} to {self.expression}"


@dataclass(frozen=True, slots=True)
class LoosenSelector(Change):
    """Removes a condition from a selector of the request; the whole selector if `rest` is empty."""

    rank: ClassVar[int] = 4
    slot: Slot
    request: str
    position: int
    condition: str
    rest: str = ""

    @property
    def size(self) -> Fraction:
        return Fraction(len(self.condition), len(self.condition) + len(self.rest))

    def apply(self, situation: Situation) -> Situation:
        selectors = self.slot.read(situation.claims).selectors
        loosened = with_expression(selectors, self.position, self.rest)
        return change(situation, claims=self.slot.write(situation.claims, selectors=loosened))

    @property
    def text(self) -> str:
        what = "condition" if self.rest else "selector"
        return f"remove the {what} {shortened(self.condition)} from request {self.request}"


@dataclass(frozen=True, slots=True)
class DropConstraint(Change):
    rank: ClassVar[int] = 5
    claim: int
    claim_id: ClaimId
    position: int
    attribute: str

    def apply(self, situation: Situation) -> Situation:
        return change(situation, claims=without_constraint(situation.claims, self.claim, self.position))

    @property
    def text(self) -> str:
        return f"remove the constraint on {self.attribute} from claim {self.claim_id}"


@dataclass(frozen=True, slots=True)
class UseClass(Change):
    """Uses a class that exists in place of one that does not. Existing classes are chosen on purpose and are kept."""

    rank: ClassVar[int] = 0
    slot: Slot
    request: str
    device_class: str
    was: str

    def apply(self, situation: Situation) -> Situation:
        return change(situation, claims=self.slot.write(situation.claims, device_class_name=self.device_class))

    @property
    def text(self) -> str:
        return f"use class {self.device_class} instead of {self.was} in request {self.request}"


@dataclass(frozen=True, slots=True)
class DropRequest(Change):
    rank: ClassVar[int] = 8
    claim: int
    claim_id: ClaimId
    position: int
    request: str

    def apply(self, situation: Situation) -> Situation:
        count = len(requests_of(situation.claims[self.claim]))
        kept = [position for position in range(count) if position != self.position]
        return change(situation, claims=with_requests_only(situation.claims, self.claim, kept))

    @property
    def text(self) -> str:
        return f"remove request {self.request} from claim {self.claim_id}"


def with_expression(
    selectors: tuple[DeviceSelector, ...], position: int, expression: str
) -> tuple[DeviceSelector, ...]:
    """The selectors with another expression at the position; without that selector if the expression is empty."""
    put = (DeviceSelector(cel=CELDeviceSelector(expression=expression)),) if expression else ()
    return (*selectors[:position], *put, *selectors[position + 1 :])
