"""Selectors and derived attributes: expressions in claims and classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dralloc.api.expression_checker import ExpressionCheck
from dralloc.api.resource_v1 import DeviceSelector
from dralloc.api.validation.context import ValidationContext
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, required, too_long, too_many
from dralloc.primitives.names import length_in_bytes

SELECTORS_COUNT_MAX: Final = 32
EXPRESSION_LENGTH_MAX: Final = 10 * 1024
EXPRESSION_COST_MAX: Final = 1_000_000


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
            if length_in_bytes(expression) > EXPRESSION_LENGTH_MAX:
                yield too_long(where, EXPRESSION_LENGTH_MAX)
            else:
                yield from judge(
                    expression, where, context.expressions.check_selector_expression(expression, context.gates)
                )


def judge(expression: str, path: FieldPath, judgement: ExpressionCheck) -> Iterator[FieldError]:
    if judgement.fault is not None:
        yield invalid(path, expression, judgement.fault)
    elif judgement.cost > EXPRESSION_COST_MAX:
        yield forbidden(path, f"too complex: evaluating it may cost more than {EXPRESSION_COST_MAX} steps")


def validate_total_cost(costs: Iterable[int], path: FieldPath) -> Iterator[FieldError]:
    if sum(costs) > EXPRESSION_COST_MAX:
        yield forbidden(
            path, f"too complex: all derived attributes together may cost more than {EXPRESSION_COST_MAX} steps"
        )
