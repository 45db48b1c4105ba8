"""The interface between admission and the expression language: whether a new expression is valid, and its cost.

Length and cost limits belong to the API and are in `validation.selectors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from dralloc.primitives.features import FeatureGates


@dataclass(frozen=True, slots=True)
class ExpressionCheck:
    """The compile error of an expression, or else its worst-case cost."""

    fault: str | None = None
    cost: int = 0


class ExpressionChecker(Protocol):
    def check_selector_expression(self, expression: str, gates: FeatureGates) -> ExpressionCheck:
        """Checks an expression that selects devices."""

    def check_derived_attribute_expression(self, expression: str, gates: FeatureGates) -> ExpressionCheck:
        """Checks an expression that computes an attribute of a device."""


class _CelChecker:
    """Caches checks: claims are made from templates, so the same few expressions repeat."""

    def check_selector_expression(self, expression: str, gates: FeatureGates) -> ExpressionCheck:
        return _judge(expression, gates, is_selector=True)

    def check_derived_attribute_expression(self, expression: str, gates: FeatureGates) -> ExpressionCheck:
        return _judge(expression, gates, is_selector=False)


@lru_cache(maxsize=4096)
def _judge(expression: str, gates: FeatureGates, *, is_selector: bool) -> ExpressionCheck:
    # Late import: the language takes a while to load, and most commands and servers start without an expression to
    # check.
    from dralloc.cel.compiler import compile_derived_attribute, compile_selector_expression, environment_for
    from dralloc.cel.errors import CelCompileError

    compile_expression = compile_selector_expression if is_selector else compile_derived_attribute
    try:
        return ExpressionCheck(cost=compile_expression(expression, environment_for(gates)).cost_max)
    except CelCompileError as error:
        return ExpressionCheck(fault=f"compilation failed: {error}")


CEL: Final[ExpressionChecker] = _CelChecker()
