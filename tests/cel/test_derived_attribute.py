"""Derived attributes: the value of an expression as an attribute of a device."""

from __future__ import annotations

import pytest

from dralloc.cel.derived_attribute import AttributeValue, compile_derived
from dralloc.cel.device import DeviceView
from dralloc.cel.errors import CelCompileError, CelEvaluationError
from dralloc.kube.resource_v1 import DeviceAttribute

DEVICE = DeviceView.build(
    "d", {"numa": DeviceAttribute(int=1), "v": DeviceAttribute(version="1.2.0"), "l": DeviceAttribute(ints=(1, 2))}
)
D = 'device.attributes["d"]'


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("true", AttributeValue("bool", True)),
        (f"{D}.numa + 1", AttributeValue("int", 2)),
        (f"string({D}.numa)", AttributeValue("string", "1")),
        (f"{D}.v", AttributeValue("version", "1.2.0")),
        (f"{D}.l", AttributeValue("ints", (1, 2))),
        ('[semver("2.0.0")]', AttributeValue("versions", ("2.0.0",))),
        ("[true]", AttributeValue("bools", (True,))),
        ("[]", AttributeValue("strings", ())),
        ("device.driver", AttributeValue("string", "d")),
    ],
)
def test_value(expression: str, want: AttributeValue) -> None:
    assert compile_derived(expression).evaluate(DEVICE) == want


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("dyn(null)", "null_type"),
        ("dyn(1.5)", "double"),
        ("dyn(1u)", "uint"),
        ("[dyn(1), dyn('a')]", "int first, but a string at 1"),
        ("[dyn(1.5)]", "list of type double"),
        (f"{D}.missing", "missing"),
    ],
)
def test_error(expression: str, words: str) -> None:
    with pytest.raises(CelEvaluationError, match=words):
        compile_derived(expression).evaluate(DEVICE)


@pytest.mark.parametrize("expression", ["1 +", "device.attributes", "null", "1.5"])
def test_an_expression_that_is_no_attribute_does_not_compile(expression: str) -> None:
    for _ in range(2):  # the second time from the cache
        with pytest.raises(CelCompileError):
            compile_derived(expression)
