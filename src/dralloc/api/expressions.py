"""What admission asks of the expression language: whether an expression that somebody writes now is a good one.

The language is another package; here is only the question. Length and cost limits belong to the API and are
held in `validation.expressions`.
"""

from __future__ import annotations

from dataclasses import dataclass
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


class _TrustingChecker:
    def judge_selector(self, expression: str, gates: FeatureGates) -> Judgement:  # noqa: ARG002
        return Judgement()

    def judge_derived_attribute(self, expression: str, gates: FeatureGates) -> Judgement:  # noqa: ARG002
        return Judgement()


# For objects whose expressions were judged before, and for readers that do not care.
TRUSTING: Final[ExpressionChecker] = _TrustingChecker()
