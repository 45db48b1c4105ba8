"""Checks new expressions for validation: the compile error, or the worst-case cost.

`validation.selectors` enforces the limits on length and cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dralloc.primitives.features import FeatureGates


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
