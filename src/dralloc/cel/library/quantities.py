"""Kubernetes' quantities."""

from __future__ import annotations

from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Library, accepted_by, text_cost
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


define("isQuantity", str, cost=text_cost)(accepted_by(quantity))
define("sign", Quantity)(lambda operand: operand.sign)
define("isInteger", Quantity)(lambda operand: operand.small_integer is not None)


@define("asInteger", Quantity)
def as_integer(operand: Quantity) -> int:
    number = operand.small_integer
    if number is None:
        raise CelEvaluationError("cannot convert value to integer")
    return number


define("asApproximateFloat", Quantity)(lambda operand: operand.approximate_float)


@define("add", Quantity, Quantity)
def add(left: Quantity, right: Quantity) -> Quantity:
    return DerivedQuantity.of_quantity(left + right)


define("add", Quantity, int)(lambda left, right: add(left, Quantity.of(right, Format.DECIMAL_EXPONENT)))


@define("sub", Quantity, Quantity)
def subtract(left: Quantity, right: Quantity) -> Quantity:
    return DerivedQuantity.of_quantity(left - right)


define("sub", Quantity, int)(lambda left, right: subtract(left, Quantity.of(right, Format.DECIMAL_EXPONENT)))
define("compareTo", Quantity, Quantity)(lambda left, right: (left.nanos > right.nanos) - (left.nanos < right.nanos))
define("isGreaterThan", Quantity, Quantity)(lambda left, right: left.nanos > right.nanos)
define("isLessThan", Quantity, Quantity)(lambda left, right: left.nanos < right.nanos)
