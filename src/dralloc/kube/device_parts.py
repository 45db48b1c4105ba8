"""Builds parts of a device from plain numbers and strings, for drivers and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dralloc.kube.resource_v1 import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    DeviceAttribute,
    DeviceCapacity,
)
from dralloc.primitives.quantity import Quantity

Amount = str | int
AttributeValue = bool | int | str | DeviceAttribute


class BadArgument(ValueError):
    """A device cannot have this value; the message says which it can have."""


def attribute(value: AttributeValue) -> DeviceAttribute:
    match value:
        case DeviceAttribute():
            return value
        case bool():
            return DeviceAttribute(bool=value)
        case int():
            return DeviceAttribute(int=value)
        case str():
            return DeviceAttribute(string=value)
        case _:
            raise BadArgument(f"{value!r} is a {type(value).__name__}; use a str, an int, a bool or version(...)")


def version(text: str) -> DeviceAttribute:
    """An attribute that is compared as a semantic version."""
    if not isinstance(text, str):
        raise BadArgument(f"version(): {text!r} is a {type(text).__name__}; use a str such as '1.2.3'")
    return DeviceAttribute(version=text)


def capacity(
    value: Amount,
    *,
    default: Amount | None = None,
    valid: Sequence[Amount] = (),
    minimum: Amount | None = None,
    maximum: Amount | None = None,
    step: Amount | None = None,
    strategy: str = "",
    consumed: bool = True,
    policy_name: str | None = None,
) -> DeviceCapacity:
    """An amount and, for a shareable device, the policy for how much of it one claim may take.

    `default` is the amount for a request that names none; without it, such a request gets the whole amount.
    `valid` is a list of the only amounts that a claim may take: a request is rounded up to the next one, and a request above the largest
    does not fit. Instead of `valid`, a range: at least `minimum`, at most `maximum`, in steps of `step` counted from `minimum`;
    `maximum` and `step` need a `minimum`. A policy with `valid` or a range has a `default`, which must be one of the allowed amounts. `strategy` says whether the first user
    decides if the capacity is consumed (gate `DRACapacityStrategies`). With `consumed=False` claims only compare with the amount
    (gate `DRAZeroConsumption`). `policy_name` is one of the device's `policies` (gate `DRANamedRequestPolicies`).

    capacity("80Gi")
    capacity("80Gi", default="10Gi", valid=["10Gi", "20Gi", "40Gi"])
    capacity("100G", default="1G", minimum="1G", maximum="40G", step="1G")
    """
    if isinstance(valid, str):
        raise BadArgument("capacity(): valid is a str; use a list of amounts")
    policy = request_policy(
        default=default, valid=valid, minimum=minimum, maximum=maximum, step=step, strategy=strategy, consumed=consumed
    )
    return DeviceCapacity(
        value=Quantity.parse(value),
        request_policy=policy if policy != CapacityRequestPolicy() else None,
        request_policy_name=policy_name,
    )


def request_policy(
    *,
    default: Amount | None = None,
    valid: Sequence[Amount] = (),
    minimum: Amount | None = None,
    maximum: Amount | None = None,
    step: Amount | None = None,
    strategy: str = "",
    consumed: bool = True,
) -> CapacityRequestPolicy:
    valid_range = CapacityRequestPolicyRange(min=_quantity(minimum), max=_quantity(maximum), step=_quantity(step))
    return CapacityRequestPolicy(
        default=_quantity(default),
        valid_values=tuple(map(Quantity.parse, valid)),
        valid_range=valid_range if valid_range != CapacityRequestPolicyRange() else None,
        strategy=strategy,
        zero_consumption=None if consumed else True,
    )


def capacity_of(value: Amount | DeviceCapacity) -> DeviceCapacity:
    return value if isinstance(value, DeviceCapacity) else capacity(value)


def capacities(stated: Mapping[str, Amount | DeviceCapacity]) -> dict[str, DeviceCapacity]:
    return {name: capacity_of(value) for name, value in stated.items()}


def counters(amounts: Mapping[str, Amount]) -> dict[str, Counter]:
    if not isinstance(amounts, Mapping):
        raise BadArgument(f"{amounts!r} is a {type(amounts).__name__}; use a dict by name")
    return {name: Counter(value=Quantity.parse(amount)) for name, amount in amounts.items()}


def _quantity(amount: Amount | None) -> Quantity | None:
    return None if amount is None else Quantity.parse(amount)
