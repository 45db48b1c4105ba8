"""Kubernetes' quantities."""

from __future__ import annotations

from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Library, text_cost
from dralloc.cel.values import DerivedQuantity
from dralloc.primitives.quantity import Format, Quantity, QuantityError

LIBRARY: Final = Library()
define: Final = LIBRARY.define


@define("quantity", str, cost=text_cost)
def quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as fault:
        raise CelEvaluationError(str(fault)) from None


@define("isQuantity", str, cost=text_cost)
def is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


@define("sign", Quantity)
def sign(operand: Quantity) -> int:
    return operand.sign


@define("isInteger", Quantity)
def is_integer(operand: Quantity) -> bool:
    return operand.small_integer is not None


@define("asInteger", Quantity)
def as_integer(operand: Quantity) -> int:
    number = operand.small_integer
    if number is None:
        raise CelEvaluationError("cannot convert value to integer")
    return number


@define("asApproximateFloat", Quantity)
def as_approximate_float(operand: Quantity) -> float:
    return operand.approximate_float


@define("add", Quantity, Quantity)
def add(left: Quantity, right: Quantity) -> Quantity:
    return DerivedQuantity.of_quantity(left + right)


@define("add", Quantity, int)
def add_int(left: Quantity, right: int) -> Quantity:
    return add(left, Quantity.of(right, Format.DECIMAL_EXPONENT))


@define("sub", Quantity, Quantity)
def subtract(left: Quantity, right: Quantity) -> Quantity:
    return DerivedQuantity.of_quantity(left - right)


@define("sub", Quantity, int)
def subtract_int(left: Quantity, right: int) -> Quantity:
    return subtract(left, Quantity.of(right, Format.DECIMAL_EXPONENT))


@define("compareTo", Quantity, Quantity)
def compare_to(left: Quantity, right: Quantity) -> int:
    return (left.nanos > right.nanos) - (left.nanos < right.nanos)


@define("isGreaterThan", Quantity, Quantity)
def is_greater_than(left: Quantity, right: Quantity) -> bool:
    return left.nanos > right.nanos


@define("isLessThan", Quantity, Quantity)
def is_less_than(left: Quantity, right: Quantity) -> bool:
    return left.nanos < right.nanos
