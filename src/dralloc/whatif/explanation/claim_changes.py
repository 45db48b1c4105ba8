"""Single changes to what claims ask for, each of which can be made and told.

What users can change in their own claims is smaller than what somebody else must do (`cluster_changes`).
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
    """One thing that is different. The smaller the `distance`, the less is different."""

    __slots__ = ()

    # Kinds of changes, from repairs that cost nothing to things that somebody else must do.
    rank: ClassVar[int]

    @abstractmethod
    def apply(self, situation: Situation) -> Situation: ...

    @property
    @abstractmethod
    def text(self) -> str:
        """What to do, as a command."""

    @property
    def size(self) -> Fraction:
        """How much is different, for comparing changes of one kind."""
        return Fraction(0)

    @property
    def distance(self) -> tuple[int, Fraction]:
        return self.rank, self.size


# --- What the claim asks for --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskLess(Change):
    """Asks for less of a capacity; `was` is None where nothing was asked, and all of it or a default was taken."""

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
            return f"ask for no more than {self.amount} of {self.capacity} in request {self.request}"
        return f"ask for {self.amount} of {self.capacity} instead of {self.was} in request {self.request}"


@dataclass(frozen=True, slots=True)
class AskForOther(Change):
    """Asks for a capacity under another name; names of capacities are compared to the letter."""

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
    """Asks for nothing of a capacity."""

    rank: ClassVar[int] = 6
    slot: Slot
    request: str
    capacity: str

    def apply(self, situation: Situation) -> Situation:
        asked = self.slot.read(situation.claims).capacity
        assert asked is not None, "a capacity is asked for"
        requests = {name: amount for name, amount in asked.requests.items() if name != self.capacity}
        kept = CapacityRequirements(requests=requests) if requests else None
        return change(situation, claims=self.slot.write(situation.claims, capacity=kept))

    @property
    def text(self) -> str:
        return f"ask for no {self.capacity} in request {self.request}"


@dataclass(frozen=True, slots=True)
class TakeFewer(Change):
    """Asks for fewer devices; `was` is None where all were asked for."""

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
    """Reads an attribute in a selector of the request only where a device has it."""

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
        return f"write the selector of request {self.request} as {self.expression}"


@dataclass(frozen=True, slots=True)
class LoosenSelector(Change):
    """Leaves a condition out of a selector of the request; the whole selector where `rest` is empty."""

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
        return f"drop the {what} {shortened(self.condition)} of request {self.request}"


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
        return f"drop the constraint on {self.attribute} from claim {self.claim_id}"


@dataclass(frozen=True, slots=True)
class UseClass(Change):
    """A class that there is, instead of one that there is not. Of classes that there are, people choose for a reason."""

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
        return f"leave request {self.request} out of claim {self.claim_id}"


def with_expression(
    selectors: tuple[DeviceSelector, ...], position: int, expression: str
) -> tuple[DeviceSelector, ...]:
    """The selectors with another expression at the position, or with none."""
    put = (DeviceSelector(cel=CELDeviceSelector(expression=expression)),) if expression else ()
    return (*selectors[:position], *put, *selectors[position + 1 :])
