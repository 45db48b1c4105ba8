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
class Judgement:
    """Why an expression cannot be used, or else what evaluating it costs at worst."""

    fault: str | None = None
    cost: int = 0


class ExpressionChecker(Protocol):
    def judge_selector(self, expression: str, gates: FeatureGates) -> Judgement:
        """An expression that says of a device whether it is wanted."""

    def judge_derived_attribute(self, expression: str, gates: FeatureGates) -> Judgement:
        """An expression that computes an attribute of a device."""


class _CelChecker:
    """Claims are made from templates, so the same few expressions come again and again."""

    def judge_selector(self, expression: str, gates: FeatureGates) -> Judgement:
        return _judge(expression, gates, is_selector=True)

    def judge_derived_attribute(self, expression: str, gates: FeatureGates) -> Judgement:
        return _judge(expression, gates, is_selector=False)


@lru_cache(maxsize=4096)
def _judge(expression: str, gates: FeatureGates, *, is_selector: bool) -> Judgement:
    # The language takes a while to load, and most commands and servers start without an expression to judge.
    from dralloc.cel.compiler import compile_derived_attribute, compile_selector, environment_for
    from dralloc.cel.errors import CelCompileError

    compile_expression = compile_selector if is_selector else compile_derived_attribute
    try:
        return Judgement(cost=compile_expression(expression, environment_for(gates)).cost_max)
    except CelCompileError as error:
        return Judgement(fault=f"compilation failed: {error}")


CEL: Final[ExpressionChecker] = _CelChecker()
