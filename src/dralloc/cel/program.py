"""Executable selectors: compiled once, used for any number of devices, pods and threads.

A selector runs as generated code where possible. The evaluator decides if the generated code gives up, and always if
only metering shows whether the selector stays within its cost limit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Final

from dralloc.cel.codegen import generate
from dralloc.cel.compiler import CheckedExpression
from dralloc.cel.compiler import compile_selector_expression as check_selector
from dralloc.cel.device import DeviceView
from dralloc.cel.environment import Environment, stored_environment
from dralloc.cel.errors import CelCompileError, CelEvaluationError
from dralloc.cel.evaluator import Evaluator
from dralloc.cel.selector_explanation import SelectorExplanation, explain
from dralloc.cel.values import Value, type_of

STORED: Final = stored_environment()

# A large cluster has some hundred different selectors; templates with names in them add more.
CACHED_MAX: Final = 4096
GENERATED_SPEED: Final = 10


class Selector:
    """An expression that matches devices."""

    # True if a device matches. Raises `CelError` if the expression fails.
    matches: Callable[[DeviceView], bool]

    def __init__(self, checked: CheckedExpression) -> None:
        self.checked = checked
        generated = generate(checked.typed, self.decide, is_cheap=checked.stays_within_budget)
        self.is_generated = generated is not None
        self.matches = generated or self.decide
        # Generated code is this much faster than what the evaluator meters.
        self.work_max = checked.cost_max // GENERATED_SPEED + 1 if generated is not None else 0

    @property
    def text(self) -> str:
        return self.checked.text

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.checked.typed)

    def decide(self, device: DeviceView) -> bool:
        """Like `matches`, with the evaluator: slower, exact, and with the reason of an error."""
        return _as_bool(self._evaluator.evaluate(device.as_map))

    def measure(self, device: DeviceView) -> tuple[bool, int]:
        """Returns whether the device matches, and the cost of the evaluation."""
        value, cost = self._evaluator.measure(device.as_map)
        return _as_bool(value), cost

    def explain(self, device: DeviceView) -> SelectorExplanation:
        """Returns the value of each part of the expression for a device."""
        return explain(self.checked.typed, device)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(expression: str, environment: Environment = STORED) -> Selector:
    """Returns the selector for a text. Raises `CelCompileError`."""
    compiled = _compile_cached(expression, environment)
    if isinstance(compiled, CelCompileError):
        raise compiled.with_traceback(None)
    return compiled


@lru_cache(maxsize=CACHED_MAX)
def _compile_cached(expression: str, environment: Environment) -> Selector | CelCompileError:
    # Errors are cached, too: an invalid selector is evaluated on every node.
    try:
        return Selector(check_selector(expression, environment))
    except CelCompileError as fault:
        return fault


def _as_bool(value: Value) -> bool:
    if value is True or value is False:
        return bool(value)
    raise CelEvaluationError(f"the result is of type {type_of(value).name}, but a selector must return a bool")
