"""The device that a selector sees."""

from __future__ import annotations

import pytest

from dralloc.cel.device import DeviceView
from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.program import compile_selector
from dralloc.kube.resource_v1 import DeviceAttribute, DeviceCapacity
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.semver import Semver
from tests.support.selectors import DRIVER, Plain, device_view


def test_a_name_without_a_domain_has_the_drivers_domain() -> None:
    device = device_view({"model": "a", "numa.example.net/node": 1}, {"memory": "1Gi", "pool.example.net/slots": "2"})
    assert device.attributes == {DRIVER: {"model": "a"}, "numa.example.net": {"node": 1}}
    assert device.capacity == {
        DRIVER: {"memory": Quantity.parse("1Gi")},
        "pool.example.net": {"slots": Quantity.parse("2")},
    }


@pytest.mark.parametrize("names", [("x", f"{DRIVER}/x"), (f"{DRIVER}/x", "x")])
def test_the_qualified_spelling_of_a_name_wins(names: tuple[str, str]) -> None:
    device = device_view({name: name for name in names}, {})
    assert device.attributes == {DRIVER: {"x": f"{DRIVER}/x"}}


def test_each_member_of_an_attribute_becomes_a_value() -> None:
    version = Semver.parse("1.0.0")
    plain: dict[str, Plain] = {
        "i": 1,
        "b": False,
        "s": "",
        "v": version,
        "is": [1],
        "bs": [True],
        "ss": ["a"],
        "vs": [version],
    }
    assert device_view(plain, {}).attributes == {DRIVER: plain}


def test_with_several_members_set_lists_come_first() -> None:
    view = DeviceView.build(
        DRIVER, {"x": DeviceAttribute(int=1, strings=("a",)), "y": DeviceAttribute(int=1, string="a")}
    )
    assert view.attributes == {DRIVER: {"x": ["a"], "y": 1}}


def test_capacity_may_have_a_policy() -> None:
    amount = Quantity.parse("1Gi")
    view = DeviceView.build(DRIVER, None, {"memory": DeviceCapacity(value=amount)})
    assert view.capacity == {DRIVER: {"memory": amount}}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (DeviceAttribute(), "attribute bad: the attribute has no value"),
        (DeviceAttribute(version="1.2"), "attribute bad: '1.2' is not a semantic version"),
        (DeviceAttribute(versions=("1.0.0", "")), "attribute bad: '' is not a semantic version"),
    ],
)
@pytest.mark.parametrize(
    "expression", ["true", 'device.driver == "x"', "true || device.allowMultipleAllocations", "1 / 0 == 1"]
)
def test_one_malformed_attribute_makes_every_selector_fail(bad: DeviceAttribute, reason: str, expression: str) -> None:
    view = DeviceView.build(DRIVER, {"good": DeviceAttribute(int=1), "bad": bad})
    for _ in range(2):
        with pytest.raises(CelEvaluationError) as caught:
            compile_selector(expression).matches(view)
        assert reason in str(caught.value)


def test_attributes_are_converted_lazily() -> None:
    view = DeviceView.build(DRIVER, {"bad": DeviceAttribute()})
    assert view.driver == DRIVER
    with pytest.raises(CelEvaluationError):
        _ = view.attributes


@pytest.mark.parametrize(("shareable", "want"), [(None, False), (False, False), (True, True)])
def test_an_unset_flag_is_false(shareable: bool | None, want: bool) -> None:
    device = device_view(shareable=shareable)
    assert compile_selector("device.allowMultipleAllocations").matches(device) is want


def test_an_unknown_member_raises_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = device_view().name
