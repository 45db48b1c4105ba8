"""What a request consumes of a device's capacity (KEP-5075)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.allocator.consumable_capacity import CapacityError, Charge, charge_for
from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import DeviceCapacity
from dralloc.primitives.quantity import Quantity

RANGE = capacity("10", default="2", minimum="2", step="2", maximum="4")
VALUES = capacity("3", default="1", valid=("1", "3"))
FRACTIONS = capacity("10", default="200m", minimum="200m", step="100m", maximum="1")


@dataclass(frozen=True)
class Case:
    id: str
    of: DeviceCapacity
    want: str | None
    asked: str | None = None
    fractional: bool = False


CASES = [
    Case("nothing asked, no policy: everything", capacity("10Gi"), "10Gi"),
    Case("nothing asked: the default", capacity("10", default="3"), "3"),
    Case(
        "nothing asked, policy without default: everything, where the policy allows it",
        capacity("3", valid=("1", "3")),
        "3",
    ),
    Case("nothing asked, policy without default that refuses everything", capacity("4", valid=("1", "3")), None),
    Case("a default of nothing", capacity("4", default="0", valid=("0",)), "0"),
    Case("asked, no policy", capacity("10Gi"), "3Gi", "3Gi"),
    Case("asked, default only", capacity("10", default="2"), "7", "7"),
    Case("asked keeps its notation", capacity("10Gi"), "3G", "3000000000"),
    Case("too much", capacity("2"), None, "3"),
    Case("all of it", capacity("2"), "2", "2"),
    Case("range: below the minimum", RANGE, "2", "1"),
    Case("range: rounded up to a step", RANGE, "4", "3"),
    Case("range: on a step", RANGE, "4", "4"),
    Case("range: above the maximum once rounded", RANGE, None, "5"),
    Case("range without step", capacity("10", default="1", minimum="1", maximum="5"), "3", "3"),
    Case("range without step: above the maximum", capacity("10", default="1", minimum="1", maximum="5"), None, "6"),
    Case("range without maximum", capacity("10", default="1", minimum="1", step="3"), "10", "8"),
    Case("range without minimum", capacity("10", default="1", maximum="5"), "3", "3"),
    Case(
        "rounded in the notation of the step",
        capacity("8Gi", default="1Gi", minimum="1Gi", step="512Mi"),
        "1536Mi",
        "1100Mi",
    ),
    Case("values: the next one", VALUES, "3", "2"),
    Case("values: that one", VALUES, "1", "1"),
    Case("values: none so large", VALUES, None, "4"),
    Case("fractions off: below the minimum stays exact", FRACTIONS, "200m", "100m"),
    Case("fractions off: whole units from the minimum on", FRACTIONS, "1", "200m"),
    Case("fractions on", FRACTIONS, "300m", "250m", fractional=True),
    Case("fractions on, whole numbers", RANGE, "4", "3", fractional=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_consumed_amounts(case: Case) -> None:
    asked = {} if case.asked is None else {"memory": Quantity.parse(case.asked)}
    charge = charge_for({"memory": case.of}, asked, fractional_ranges=case.fractional)
    taken = str(charge.amounts[0]) if isinstance(charge, Charge) else None
    assert taken == case.want


def test_every_capacity_is_consumed_and_an_unknown_one_cannot_be_requested() -> None:
    device = {"memory": capacity("8"), "slots": capacity("4", default="1")}
    charge = charge_for(device, {"memory": Quantity.parse("3")}, fractional_ranges=False)
    assert isinstance(charge, Charge)
    assert [str(amount) for amount in charge.amounts] == ["3", "1"]
    refused = charge_for(device, {"example.com/memory": Quantity.parse("3")}, fractional_ranges=False)
    assert refused == "has no capacity example.com/memory"


@dataclass(frozen=True)
class Fault:
    id: str
    of: DeviceCapacity
    asked: str
    others: dict[str, DeviceCapacity] = field(default_factory=dict)
    fractional: bool = False


FAULTS = [
    Fault("negative", capacity("10"), "-1"),
    Fault(
        "beyond 64 bits, where steps are counted",
        capacity("10", default="1", minimum="1", step="1"),
        "9223372036854775808",
    ),
    Fault("beyond 64 bits once rounded", capacity("10", default="1", minimum="1", step="1000"), "9223372036854775807"),
    Fault("finer than thousandths, where fractions are on", FRACTIONS, "200500u", fractional=True),
    Fault("a fault beats what does not fit", capacity("10"), "-1", {"slots": capacity("1", default="2")}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_amounts_that_cannot_be_represented(fault: Fault) -> None:
    capacities = {**fault.others, "memory": fault.of}
    with pytest.raises(CapacityError):
        charge_for(capacities, {"memory": Quantity.parse(fault.asked)}, fractional_ranges=fault.fractional)


def test_a_large_amount_without_rounding_is_no_error() -> None:
    assert isinstance(charge_for({"m": capacity("10")}, {"m": Quantity.parse("1e30")}, fractional_ranges=False), str)


whole = st.integers(0, 50)


@given(
    least=whole, steps=st.integers(1, 9), most=whole, asked=whole, value=st.integers(0, 60), fractional=st.booleans()
)
def test_rounding_gives_the_least_allowed_amount(
    least: int, steps: int, most: int, asked: int, value: int, fractional: bool
) -> None:
    stepped = capacity(str(value), default=str(least), minimum=str(least), step=str(steps), maximum=str(most))
    charge = charge_for({"m": stepped}, {"m": Quantity.of(asked)}, fractional_ranges=fractional)
    allowed = [amount for amount in range(least, 120, steps) if amount >= asked]
    best = allowed[0]
    if best <= value and (best <= most or best == least):
        assert isinstance(charge, Charge)
        assert charge.nanos == (best * 10**9,)
    else:
        assert isinstance(charge, str)
