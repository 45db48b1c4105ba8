"""Request policies: how much of a shareable device's capacity a request may take (KEP-5075).

Kubernetes uses 64-bit integers here and rounds fractions up, unless the gate DRAFractionalCapacityRange is on: then a
policy with fractions is computed in thousandths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from dralloc.kube.resource_v1 import (
    AGGREGATED_CAPACITY,
    ALL,
    ALWAYS_CONSUMED,
    BLOCK_OR_SHARE,
    CONSUMED_OR_NEVER,
    FIRST_FIT,
    LEAST_AVAILABLE,
    MOST_AVAILABLE,
    CapacityRequestPolicy,
    CapacityRequirements,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from dralloc.kube.validation import formats
from dralloc.kube.validation.formats import validate_choice, validate_unique
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, required, too_many
from dralloc.primitives.quantity import INT64_MAX, NANOS, Quantity

VALID_VALUES_COUNT_MAX: Final = 10
STRATEGIES: Final = (ALWAYS_CONSUMED, BLOCK_OR_SHARE, CONSUMED_OR_NEVER)


def validate_request_policy(
    policy: CapacityRequestPolicy, capacity: Quantity, path: FieldPath, gates: FeatureGates
) -> Iterator[FieldError]:
    """Validates the policy of a shareable device's capacity. A policy without values and without a range is always
    valid.
    """
    if policy.strategy:
        yield from validate_choice(policy.strategy, path.child("strategy"), STRATEGIES)
    if policy.strategy == BLOCK_OR_SHARE and policy.default is not None and policy.default.sign <= 0:
        yield invalid(
            path.child("default"), policy.default, f"must be greater than zero with strategy {BLOCK_OR_SHARE}"
        )
    if policy.zero_consumption is not None:
        yield from _validate_zero_consumption(policy, path)
    if policy.valid_values and policy.valid_range is not None:
        yield forbidden(path, "validValues and validRange exclude each other")
    elif policy.valid_values:
        if policy.default is None:
            yield required(path.child("default"), "required when validValues is set")
        else:
            values = _Values(policy.valid_values, policy.default, capacity, path.child("validValues"))
            yield from _validate_values(values, is_exact="DRAFractionalCapacityRange" in gates)
    elif policy.valid_range is not None:
        if policy.default is None:
            yield required(path.child("default"), "required when validRange is set")
        elif policy.valid_range.min is None:
            yield required(path.child("validRange", "min"), "required when validRange is set")
        else:
            yield from _Range.of(policy, policy.default, policy.valid_range.min, capacity, path, gates).validate()


def _validate_zero_consumption(policy: CapacityRequestPolicy, path: FieldPath) -> Iterator[FieldError]:
    if not policy.zero_consumption:
        yield invalid(path.child("zeroConsumption"), False, "must be unset or true")
    if policy != CapacityRequestPolicy(zero_consumption=policy.zero_consumption):
        detail = "default, validValues, validRange and strategy exclude zeroConsumption"
        yield forbidden(path.child("zeroConsumption"), detail)


# --- Listed values ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Values:
    values: tuple[Quantity, ...]
    default: Quantity
    capacity: Quantity
    path: FieldPath


def _validate_values(policy: _Values, *, is_exact: bool) -> Iterator[FieldError]:
    values, path = policy.values, policy.path
    for position in range(1, len(values)):
        if values[position - 1] > values[position]:
            yield invalid(path.index(position), values[position], "values must be in ascending order")
    if len(values) > VALID_VALUES_COUNT_MAX:
        yield too_many(path, len(values), VALID_VALUES_COUNT_MAX)
        # Kubernetes searches for the default in the same loop as it checks the values; the reported errors are the
        # same.
        yield invalid(path, policy.default, "must contain the default")
        return
    for position, value in enumerate(values):
        if value > policy.capacity:
            yield invalid(path.index(position), value, f"is larger than the capacity, {policy.capacity}")
    yield from validate_unique(values, path, _as_decimal if is_exact else _rounded_up)
    if policy.default not in values:
        yield invalid(path, policy.default, "must contain the default")


def _rounded_up(value: Quantity) -> int:
    return value.int64_value


def _as_decimal(value: Quantity) -> str:
    # Kubernetes compares plain decimal texts, in which `1` and `1000m` differ.
    return f"{Decimal(value.nanos).scaleb(-9):.{value.decimal_places}f}"


# --- A range ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Range:
    """A range with its default, the capacity it belongs to, and the path for its errors."""

    default: Quantity
    min: Quantity
    max: Quantity | None
    step: Quantity | None
    capacity: Quantity
    path: FieldPath
    in_thousandths: bool

    @classmethod
    def of(
        cls,
        policy: CapacityRequestPolicy,
        default: Quantity,
        minimum: Quantity,
        capacity: Quantity,
        path: FieldPath,
        gates: FeatureGates,
    ) -> _Range:
        limits = policy.valid_range
        assert limits is not None, "the caller looks for policies that have a range"
        amounts = (default, minimum, limits.max, limits.step)
        has_fraction = any(amount is not None and amount.nanos % NANOS for amount in amounts)
        return cls(
            default=default,
            min=minimum,
            max=limits.max,
            step=limits.step,
            capacity=capacity,
            path=path.child("validRange"),
            in_thousandths="DRAFractionalCapacityRange" in gates and has_fraction,
        )

    def validate(self) -> Iterator[FieldError]:
        yield from self._validate_order()
        if self.in_thousandths and (faults := tuple(self._validate_thousandths())):
            yield from faults
        elif self.step is not None:
            yield from self._validate_step(self.step)

    def _validate_order(self) -> Iterator[FieldError]:
        if self.min > self.capacity:
            yield invalid(self.path.child("min"), self.min, f"is larger than the capacity, {self.capacity}")
        if self.default < self.min:
            yield invalid(self.path.child("default"), self.default, f"is less than min, {self.min}")
        if self.max is None:
            return
        if self.min > self.max:
            yield invalid(self.path.child("max"), self.min, f"min is larger than max, {self.max}")
        if self.max > self.capacity:
            yield invalid(self.path.child("max"), self.max, f"is larger than the capacity, {self.capacity}")
        if self.default > self.max:
            yield invalid(self.path.child("default"), self.default, f"is more than max, {self.max}")

    def _validate_step(self, step: Quantity) -> Iterator[FieldError]:
        if step.sign <= 0:
            yield invalid(self.path.child("step"), step, "must be greater than zero")
            return
        if self.min + step > self.capacity:
            yield invalid(
                self.path.child("step"), step, f"min and one step are larger than the capacity, {self.capacity}"
            )
        if not self.in_thousandths and (faults := tuple(self._validate_integers())):
            yield from faults
        else:
            yield from self._validate_alignment(step)

    def _validate_alignment(self, step: Quantity) -> Iterator[FieldError]:
        for amount in (self.default, self.max):
            if amount is not None and (self._count(amount) - self._count(self.min)) % self._count(step):
                yield invalid(
                    self.path.child("step"), amount, f"is not min ({self.min}) plus a multiple of the step, {step}"
                )

    def _count(self, amount: Quantity) -> int:
        if not self.in_thousandths:
            return amount.value
        milli = amount.milli
        assert milli is not None, "amounts that are no thousandths were refused before"
        return milli

    def _amounts(self) -> Iterator[tuple[str, Quantity]]:
        for name, amount in (("default", self.default), ("min", self.min), ("max", self.max), ("step", self.step)):
            if amount is not None:
                yield name, amount

    def _validate_thousandths(self) -> Iterator[FieldError]:
        for name, amount in self._amounts():
            if amount.milli is None:
                yield invalid(self.path.child(name), amount, "must be a multiple of 1m that fits 64 bits")

    def _validate_integers(self) -> Iterator[FieldError]:
        for name, amount in self._amounts():
            if not 0 <= amount.nanos <= INT64_MAX * NANOS:
                yield invalid(self.path.child(name), amount, f"must be between 0 and {INT64_MAX}")


# --- Requested capacity ---------------------------------------------------------------------------------------------
# What a request says about amounts and about the order of devices: limits, totals, preference, allocations.
#
# No released Kubernetes has these fields; their rules are our own.


PREFERENCES: Final = (FIRST_FIT, LEAST_AVAILABLE, MOST_AVAILABLE)
LIMITS_COUNT_MAX: Final = 32
# As many devices as a claim can have.
AGGREGATED_COUNT_MAX: Final = 32

Ask = ExactDeviceRequest | DeviceSubRequest


def validate_requested_capacity(ask: Ask, path: FieldPath) -> Iterator[FieldError]:
    if ask.allocation_mode == AGGREGATED_CAPACITY:
        yield from _validate_aggregated(ask, path)
    elif ask.capacity is not None and ask.capacity.limits:
        yield from _validate_limits(ask.capacity, path.child("capacity", "limits"))
    if ask.device_preference is not None:
        yield from validate_device_preference(ask.device_preference, path.child("devicePreference"))
    if ask.allocations is not None:
        yield from _validate_allocations(ask, path.child("allocations"))


def validate_device_preference(preference: str, path: FieldPath) -> Iterator[FieldError]:
    yield from formats.validate_choice(preference, path, PREFERENCES)


def _validate_limits(capacity: CapacityRequirements, path: FieldPath) -> Iterator[FieldError]:
    if len(capacity.limits) > LIMITS_COUNT_MAX:
        yield too_many(path, len(capacity.limits), LIMITS_COUNT_MAX)
        return
    for name, limit in capacity.limits.items():
        yield from formats.validate_qualified_name(name, path)
        where, request = path.key(name), capacity.requests.get(name)
        if limit.sign < 0:
            yield invalid(where, limit, "must be greater than or equal to zero")
        elif request is not None and limit < request:
            yield invalid(where, limit, f"must be greater than or equal to the request, {request}")


def _validate_aggregated(ask: Ask, path: FieldPath) -> Iterator[FieldError]:
    """The requests are totals over all devices, so a limit of one device has no meaning."""
    if not 0 < ask.count <= AGGREGATED_COUNT_MAX:
        yield invalid(path.child("count"), ask.count, f"must be between 1 and {AGGREGATED_COUNT_MAX}")
    totals, where = ask.capacity.requests if ask.capacity else {}, path.child("capacity", "requests")
    if not totals:
        yield required(where, f"required when allocationMode is {AGGREGATED_CAPACITY}")
    for name, total in totals.items():
        yield from formats.validate_qualified_name(name, where)
        if total.sign <= 0:
            yield invalid(where.key(name), total, "must be greater than zero")
    if ask.capacity is not None and ask.capacity.limits:
        yield forbidden(
            path.child("capacity", "limits"), f"may not be set when allocationMode is {AGGREGATED_CAPACITY}"
        )
    if isinstance(ask, ExactDeviceRequest) and ask.admin_access:
        yield forbidden(path.child("adminAccess"), f"may not be set when allocationMode is {AGGREGATED_CAPACITY}")


def _validate_allocations(ask: Ask, path: FieldPath) -> Iterator[FieldError]:
    """A request for all devices cannot depend on how often each is allocated: `All` means none is left out."""
    allocations = ask.allocations
    assert allocations is not None, "the caller looks for requests that have the field"
    if ask.allocation_mode == ALL:
        yield forbidden(path, "may not be set when allocationMode is All")
    if allocations.min is None and allocations.max is None:
        yield required(path, "at least one of min and max is required")
    for name, bound in (("min", allocations.min), ("max", allocations.max)):
        if bound is not None and bound < 0:
            yield invalid(path.child(name), bound, "must be greater than or equal to zero")
    if allocations.min is not None and allocations.max is not None and allocations.max < allocations.min:
        yield invalid(path.child("max"), allocations.max, f"must be greater than or equal to min, {allocations.min}")
