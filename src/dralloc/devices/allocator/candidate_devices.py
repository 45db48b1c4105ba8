"""DeviceCandidate devices: which devices of a slice match a request, by the slice and the request alone.

Matching is by far the most expensive part of an allocation, and no allocation changes its result. Slices with equal
devices therefore cache the matching devices (`SliceMatches`, as bit masks) for every `DeviceCriteria`, and equal devices share
the results of selectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from msgspec import Struct

from dralloc.cel.errors import CelError
from dralloc.cel.program import compile_selector
from dralloc.devices.allocator.consumable_capacity import NO_CHARGE, CapacityError, Charge, base_charge, charge_for
from dralloc.devices.allocator.features import Features
from dralloc.devices.share_terms import capacities_of
from dralloc.devices.slices import DeviceShape, IndexedSlice, bits_of
from dralloc.devices.taints import repels
from dralloc.kube.resource_v1 import Device, DeviceToleration
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.work_allowance import check_work, work_done


class DeviceCriteria:
    """What a request requires of a single device. Equal criteria get equal offers, whichever claims they come from."""

    __slots__ = (
        "_hash",
        "_key",
        "allows_binding",
        "allows_counters",
        "asked",
        "class_selectors",
        "fractional_ranges",
        "gates_off",
        "is_aggregated",
        "limits",
        "request_selectors",
        "skips_negative_amounts",
        "tolerations",
    )

    def __init__(
        self,
        *,
        class_selectors: tuple[str, ...],
        request_selectors: tuple[str, ...],
        # Sorted names and amounts; None where capacity is ignored. Texts, because 1Ki and 1024 are printed differently.
        capacity: tuple[tuple[str, str], ...] | None,
        # None where taints are ignored.
        tolerations: tuple[DeviceToleration, ...] | None,
        allows_binding: bool,
        allows_counters: bool,
        fractional_ranges: bool,
        skips_negative_amounts: bool,
        # Sorted names and amounts, which `capacity` has, too, where it does not request less.
        limits: tuple[tuple[str, str], ...] = (),
        # Devices that need one of these gates are left alone.
        gates_off: frozenset[str] = frozenset(),
        # True where `capacity` are totals, of which a device gives a part.
        is_aggregated: bool = False,
    ) -> None:
        self.class_selectors = class_selectors
        self.request_selectors = request_selectors
        self.tolerations = tolerations
        self.allows_binding = allows_binding
        self.allows_counters = allows_counters
        self.fractional_ranges = fractional_ranges
        self.skips_negative_amounts = skips_negative_amounts
        self.is_aggregated = is_aggregated
        self.asked: Mapping[str, Quantity] | None = None
        if capacity is not None:
            self.asked = {name: Quantity.parse(text) for name, text in capacity}
        self.limits = {name: Quantity.parse(text) for name, text in limits}
        self.gates_off = gates_off
        flags = (allows_binding, allows_counters, fractional_ranges, skips_negative_amounts, is_aggregated)
        self._key = (class_selectors, request_selectors, capacity, limits, tolerations, flags, gates_off)
        self._hash = hash(self._key)

    @classmethod
    def of_any_device(cls, features: Features, *, capacity: tuple[tuple[str, str], ...] | None) -> DeviceCriteria:
        """The criteria of a request without class, selectors and tolerations."""
        return cls(
            class_selectors=(),
            request_selectors=(),
            capacity=capacity,
            tolerations=() if features.device_taints else None,
            allows_binding=features.binding_conditions,
            allows_counters=features.partitionable_devices,
            fractional_ranges=features.fractional_ranges,
            skips_negative_amounts=features.skips_negative_amounts,
            gates_off=features.device_gates_off,
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceCriteria) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash


class MatchStage(Enum):
    """The checks of a single device, in Kubernetes' order."""

    BINDING_CONDITIONS = "binding conditions"
    CLASS_SELECTOR = "class selector"
    REQUEST_SELECTOR = "request selector"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True)
class DeviceMismatch:
    """Why a device does not match. `position` is the index of the selector."""

    stage: MatchStage
    position: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DeviceError:
    """A check that failed with an error, which ends a search that reaches the device."""

    stage: MatchStage
    position: int
    message: str


class SliceMatches(Struct, frozen=True, eq=False):
    """The devices of a slice under one criteria.

    The search ends with an error at a device in `faulty_selection`, and at one in `faulty_capacity` if it is for the node.
    `barred` devices match, but a taint or a disabled feature excludes them.
    """

    matched: int
    barred: int
    faulty_selection: int
    faulty_capacity: int
    faults: Mapping[int, DeviceError]
    charges: Mapping[int, Charge]


def matches_of(indexed: IndexedSlice, criteria: DeviceCriteria) -> SliceMatches:
    answers = indexed.kind.answers
    matches: SliceMatches | None = answers.get(criteria)
    if matches is None:
        matches = answers.keep(criteria, _match_slice(indexed, criteria))
    return matches


def match_device(
    indexed: IndexedSlice, bit: int, criteria: DeviceCriteria, known: Charge | None = None
) -> Charge | DeviceMismatch | DeviceError:
    """What a request consumes of an unused device, or why the device does not match. Ignores node placement and taints.

    `known` is what it consumes of a device with the same capacities.
    """
    if not criteria.allows_binding and indexed.binding >> bit & 1:
        return DeviceMismatch(MatchStage.BINDING_CONDITIONS)
    if criteria.class_selectors or criteria.request_selectors:
        shape = indexed.shape(bit)
        if (verdict := _select(shape, MatchStage.CLASS_SELECTOR, criteria.class_selectors)) is not None:
            return verdict
        if (verdict := _select(shape, MatchStage.REQUEST_SELECTOR, criteria.request_selectors)) is not None:
            return verdict
    if criteria.asked is None or gate_off(indexed, bit, criteria) is not None:
        return NO_CHARGE
    if known is not None:
        return known
    try:
        charge = _charge(indexed.devices[bit], criteria, criteria.asked)
    except CapacityError as error:
        return DeviceError(MatchStage.CAPACITY, 0, str(error))
    return charge if isinstance(charge, Charge) else DeviceMismatch(MatchStage.CAPACITY, detail=charge)


def _charge(device: Device, criteria: DeviceCriteria, asked: Mapping[str, Quantity]) -> Charge | str:
    fractional, skips = criteria.fractional_ranges, criteria.skips_negative_amounts
    capacities = capacities_of(device)
    if criteria.is_aggregated:
        return base_charge(capacities, asked, fractional_ranges=fractional, skips_negative_amounts=skips)
    return charge_for(
        capacities, asked, limits=criteria.limits, fractional_ranges=fractional, skips_negative_amounts=skips
    )


def gate_off(indexed: IndexedSlice, bit: int, criteria: DeviceCriteria) -> str | None:
    """A feature gate that the device needs and that is off."""
    return next((gate for gate, mask in indexed.gated.items() if mask >> bit & 1 and gate in criteria.gates_off), None)


def is_repelled(indexed: IndexedSlice, bit: int, criteria: DeviceCriteria) -> bool:
    """True if a taint in the slice excludes the device."""
    if criteria.tolerations is None:
        return False
    return any(repels(taint, criteria.tolerations) for taint in indexed.devices[bit].taints)


def _match_slice(indexed: IndexedSlice, criteria: DeviceCriteria) -> SliceMatches:
    matched = faulty_selection = faulty_capacity = 0
    faults: dict[int, DeviceError] = {}
    charges: dict[int, Charge] = {}
    for bit, device in enumerate(indexed.devices):
        known = charges.get(bit - 1)
        # Charges have the order of the capacities.
        is_alike = known is not None and _has_equal_capacities(device, indexed.devices[bit - 1])
        match match_device(indexed, bit, criteria, known if is_alike else None):
            case Charge() as charge:
                matched |= 1 << bit
                charges[bit] = charge
            case DeviceError() as fault:
                faults[bit] = fault
                if fault.stage is MatchStage.CAPACITY:
                    faulty_capacity |= 1 << bit
                else:
                    faulty_selection |= 1 << bit
            case DeviceMismatch():
                pass
    barred = sum(1 << bit for bit in bits_of(indexed.tainted) if is_repelled(indexed, bit, criteria))
    if not criteria.allows_counters:
        barred |= indexed.counting
    for gate, mask in indexed.gated.items():
        if gate in criteria.gates_off:
            barred |= mask
    return SliceMatches(matched, barred, faulty_selection, faulty_capacity, faults, charges)


def _has_equal_capacities(device: Device, other: Device) -> bool:
    return (
        list(device.capacity.items()) == list(other.capacity.items())
        and device.request_policies == other.request_policies
    )


# --- Selectors --------------------------------------------------------------------------------------------------


def _select(shape: DeviceShape, stage: MatchStage, expressions: tuple[str, ...]) -> DeviceMismatch | DeviceError | None:
    """None if every expression is true."""
    for position, expression in enumerate(expressions):
        answer = _answer(shape, expression)
        if isinstance(answer, CelError):
            return DeviceError(stage, position, f"CEL runtime error: {answer}")
        if not answer:
            return DeviceMismatch(stage, position)
    return None


def _answer(shape: DeviceShape, expression: str) -> bool | CelError:
    answer: bool | CelError | None = shape.answers.get(expression)
    if answer is None:
        check_work()
        answer = shape.answers.keep(expression, _evaluate(shape, expression))
    return answer


def _evaluate(shape: DeviceShape, expression: str) -> bool | CelError:
    try:
        selector = compile_selector(expression)
        work_done(selector.work_max)
        return selector.matches(shape.view)
    except CelError as error:
        return error.with_traceback(None)
