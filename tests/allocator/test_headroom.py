"""The largest request that fits, compared with requests for every possible amount."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.allocator.consumable_capacity import CapacityError, Charge, charge_for
from dralloc.devices.allocator.headroom import Room
from dralloc.kube import device_parts as parts
from dralloc.kube.resource_v1 import DeviceCapacity
from dralloc.primitives.quantity import NANOS, Quantity, quantity_like

GI = 2**30


@pytest.mark.parametrize(
    ("found", "free", "want"),
    [
        pytest.param(parts.capacity("40Gi"), "24Gi", "24Gi", id="without a policy all that is left"),
        pytest.param(parts.capacity("40Gi", default="1Gi"), "24Gi", "24Gi", id="a default alone does not bound"),
        pytest.param(
            parts.capacity("10", default="1", valid=("1", "4", "8")), "7", "4", id="the next valid value below"
        ),
        pytest.param(
            parts.capacity("10", default="4", valid=("4", "8")), "3", None, id="no valid value is small enough"
        ),
        pytest.param(
            parts.capacity("10", default="2", minimum="2", maximum="6"), "9", "6", id="no more than the maximum"
        ),
        pytest.param(
            parts.capacity("10", default="2", minimum="2", step="3"), "9", "8", id="whole steps from the minimum"
        ),
        pytest.param(parts.capacity("10", default="2", minimum="2"), "1", None, id="less than the minimum"),
        pytest.param(
            parts.capacity("1", default="200m", minimum="200m", step="100m"), "1", "1", id="steps in whole units"
        ),
        pytest.param(parts.capacity("0"), "0", "0", id="nothing of nothing"),
    ],
)
def test_largest_request(found: DeviceCapacity, free: str, want: str | None) -> None:
    left = [Quantity.parse(free).nanos]
    largest = Room({"memory": found}, left).largest_request("memory")
    assert (None if largest is None else str(largest)) == want


def test_nothing_is_left_if_another_capacity_is_used_up() -> None:
    found = {"memory": parts.capacity("40Gi"), "slots": parts.capacity("2", default="1", valid=("1", "2"))}
    assert Room(found, (40 * GI * NANOS, 0)).largest_request("memory") is None
    assert Room(found, (40 * GI * NANOS, NANOS)).largest_request("memory") is not None


amounts = st.integers(0, 12)


@st.composite
def capacities(draw: st.DrawFn) -> DeviceCapacity:
    value, default = draw(st.integers(1, 12)), draw(amounts)
    match draw(st.sampled_from(["none", "default", "values", "range"])):
        case "none":
            return parts.capacity(str(value))
        case "default":
            return parts.capacity(str(value), default=str(default))
        case "values":
            valid = sorted(draw(st.sets(amounts, min_size=1, max_size=4)))
            return parts.capacity(str(value), default=str(valid[0]), valid=[str(each) for each in valid])
        case _:
            least = draw(amounts)
            return parts.capacity(
                str(value),
                default=str(least),
                minimum=str(least),
                maximum=draw(st.none() | st.integers(least, 14).map(str)),
                step=draw(st.none() | st.integers(1, 4).map(str)),
            )


def taken(found: dict[str, DeviceCapacity], free: list[int], asked: dict[str, int], *, fractional: bool) -> int | None:
    """What a request consumes of memory, in nanos; None if it does not fit."""
    quantities = {name: Quantity.of(amount) for name, amount in asked.items()}
    try:
        charge = charge_for(found, quantities, fractional_ranges=fractional)
    except CapacityError:
        return None
    fits = isinstance(charge, Charge) and all(take <= have for take, have in zip(charge.nanos, free, strict=True))
    return charge.nanos[0] if fits and isinstance(charge, Charge) else None


@pytest.mark.slow
@pytest.mark.fuzz
@given(memory=capacities(), slots=st.none() | capacities(), used=st.tuples(amounts, amounts), fractional=st.booleans())
def test_no_larger_request_fits(
    memory: DeviceCapacity, slots: DeviceCapacity | None, used: tuple[int, int], fractional: bool
) -> None:
    found = {"memory": memory} if slots is None else {"memory": memory, "slots": slots}
    free = [each.value.nanos - gone * NANOS for each, gone in zip(found.values(), used, strict=False)]
    asks = (
        {"memory": asked, **({"slots": other} if slots is not None else {})}
        for asked in range(16)
        for other in (range(16) if slots is not None else (0,))
    )
    most = max(
        (got for ask in asks if (got := taken(found, free, ask, fractional=fractional)) is not None), default=None
    )
    largest = Room(found, free, fractional_ranges=fractional).largest_request("memory")
    assert (None if largest is None else largest.nanos) == most


@given(model=st.sampled_from(["40Gi", "10", "1500m", "0"]), nanos=st.integers(0, 10**15))
def test_an_amount_keeps_its_value_in_another_notation(model: str, nanos: int) -> None:
    assert quantity_like(Quantity.parse(model), nanos).nanos == nanos


def test_an_amount_is_written_as_its_model_is() -> None:
    assert str(quantity_like(Quantity.parse("40Gi"), 24 * GI * NANOS)) == "24Gi"
    assert str(quantity_like(Quantity.parse("40G"), 24 * 10**9 * NANOS)) == "24G"
