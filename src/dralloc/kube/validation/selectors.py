"""Selectors and derived attributes: expressions in claims and classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dralloc.cel.meter import COST_MAX, LENGTH_MAX_BYTES
from dralloc.kube.resource_v1 import DeviceSelector
from dralloc.kube.validation.context import ValidationContext
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, required, too_long, too_many
from dralloc.primitives.names import length_in_bytes

SELECTORS_COUNT_MAX: Final = 32


def validate_selectors_size(selectors: tuple[DeviceSelector, ...], path: FieldPath) -> Iterator[FieldError]:
    if len(selectors) > SELECTORS_COUNT_MAX:
        yield too_many(path, len(selectors), SELECTORS_COUNT_MAX)


def validate_selectors(
    selectors: tuple[DeviceSelector, ...], path: FieldPath, context: ValidationContext, *, stored: bool = False
) -> Iterator[FieldError]:
    """Every selector has an expression, which must be valid unless it is stored: older rules may have accepted it.

    A list that is too long is not validated further.
    """
    if len(selectors) > SELECTORS_COUNT_MAX:
        return
    for position, selector in enumerate(selectors):
        if selector.cel is None:
            yield required(path.index(position).child("cel"))
        elif not stored:
            expression = selector.cel.expression
            where = path.index(position).child("cel", "expression")
            if length_in_bytes(expression) > LENGTH_MAX_BYTES:
                yield too_long(where, LENGTH_MAX_BYTES)
            else:
                yield from validate_check(
                    expression, where, check_expression(expression, context.gates, is_selector=True)
                )


def validate_check(expression: str, path: FieldPath, check: ExpressionCheck) -> Iterator[FieldError]:
    if check.fault is not None:
        yield invalid(path, expression, check.fault)
    elif check.cost > COST_MAX:
        yield forbidden(path, f"too complex: evaluating it may cost more than {COST_MAX} steps")


def validate_total_cost(costs: Iterable[int], path: FieldPath) -> Iterator[FieldError]:
    if sum(costs) > COST_MAX:
        yield forbidden(path, f"too complex: all derived attributes together may cost more than {COST_MAX} steps")


# --- Expression checker ---------------------------------------------------------------------------------------------
# Checks new expressions for validation: the compile error, or the worst-case cost.
#
# `validation.selectors` enforces the limits on length and cost.


@dataclass(frozen=True, slots=True)
class ExpressionCheck:
    """The compile error of an expression, or else its worst-case cost."""

    fault: str | None = None
    cost: int = 0


# Claims are made from templates, so the same few expressions repeat.
@lru_cache(maxsize=4096)
def check_expression(expression: str, gates: FeatureGates, *, is_selector: bool) -> ExpressionCheck:
    """Checks the expression of a selector, or that of a derived attribute."""
    # Late import: the language takes a while to load, and most commands and servers start without an expression to check.
    from dralloc.cel.compiler import compile_derived_attribute, compile_selector_expression, environment_for
    from dralloc.cel.errors import CelCompileError

    compile_expression = compile_selector_expression if is_selector else compile_derived_attribute
    try:
        return ExpressionCheck(cost=compile_expression(expression, environment_for(gates)).cost_max)
    except CelCompileError as error:
        return ExpressionCheck(fault=f"compilation failed: {error}")
