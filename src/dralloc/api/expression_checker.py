"""What admission asks of the expression language: whether an expression that somebody writes now is a good one.

The language is another package; here is only the question, and the language's answer to it. Length and cost
limits belong to the API and are held in `validation.expressions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from dralloc.primitives.features import FeatureGates


@dataclass(frozen=True, slots=True)
class ExpressionCheck:
    """Why an expression cannot be used, or else what evaluating it costs at worst."""

    fault: str | None = None
    cost: int = 0


class ExpressionChecker(Protocol):
    def check_selector_expression(self, expression: str, gates: FeatureGates) -> ExpressionCheck:
        """An expression that says of a device whether it is wanted."""

    def check_derived_attribute_expression(self, expression: str, gates: FeatureGates) -> ExpressionCheck:
        """An expression that computes an attribute of a device."""


class _CelChecker:
    """Claims are made from templates, so the same few expressions come again and again."""

    def check_selector_expression(self, expression: str, gates: FeatureGates) -> ExpressionCheck:
        return _judge(expression, gates, is_selector=True)

    def check_derived_attribute_expression(self, expression: str, gates: FeatureGates) -> ExpressionCheck:
        return _judge(expression, gates, is_selector=False)


@lru_cache(maxsize=4096)
def _judge(expression: str, gates: FeatureGates, *, is_selector: bool) -> ExpressionCheck:
    # The language takes a while to load, and most commands and servers start without an expression to judge.
    from dralloc.cel.compiler import compile_derived_attribute, compile_selector_expression, environment_for
    from dralloc.cel.errors import CelCompileError

    compile_expression = compile_selector_expression if is_selector else compile_derived_attribute
    try:
        return ExpressionCheck(cost=compile_expression(expression, environment_for(gates)).cost_max)
    except CelCompileError as error:
        return ExpressionCheck(fault=f"compilation failed: {error}")


CEL: Final[ExpressionChecker] = _CelChecker()
