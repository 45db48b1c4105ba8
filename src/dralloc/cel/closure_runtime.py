"""The runtime of closures: frames, chains of steps, and the observer for explanations."""

from __future__ import annotations

from collections.abc import Callable

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.limits import COST_MAX
from dralloc.cel.meter import Meter
from dralloc.cel.syntax import Expression
from dralloc.cel.values import MISSING, Value


class EvaluationFrame(Meter):
    """One evaluation: the variables, and the cost so far."""

    __slots__ = ("slots",)

    def __init__(self, slots_count: int, cost_max: int = COST_MAX) -> None:
        super().__init__(cost_max)
        self.slots: list[Value] = [MISSING] * slots_count


Run = Callable[[EvaluationFrame], Value]
Step = Callable[[EvaluationFrame, Value], Value]


class Steps:
    """Code under construction: a start, and steps that turn one value into the next."""

    __slots__ = ("before", "step")

    def __init__(self, before: Steps | Run, step: Step) -> None:
        self.before = before
        self.step = step


Code = Run | Steps


def finish(code: Code) -> Run:
    """Returns the code as one function. The steps run in a loop, not nested, however many there are."""
    if not isinstance(code, Steps):
        return code
    steps: list[Step] = []
    while isinstance(code, Steps):
        steps.append(code.step)
        code = code.before
    start = code
    if len(steps) == 1:
        only = steps[0]
        return lambda frame: only(frame, start(frame))
    if len(steps) == 2:
        last, first = steps
        return lambda frame: last(frame, first(frame, start(frame)))
    steps.reverse()

    def run(frame: EvaluationFrame) -> Value:
        value = start(frame)
        for step in steps:
            value = step(frame, value)
        return value

    return run


class Raised:
    """An error in place of a value."""

    __slots__ = ("error",)

    def __init__(self, error: CelEvaluationError) -> None:
        self.error = error


# Called with the value of a part of the expression each time it was evaluated.
Observer = Callable[[Expression, Value | Raised], None]


def reporting(node: Expression, code: Code, observe: Observer) -> Code:
    """Returns the code with a call of the observer for each value."""
    if isinstance(code, Steps):
        step = code.step
        return Steps(code.before, lambda frame, value: _report(node, observe, lambda: step(frame, value)))
    return lambda frame: _report(node, observe, lambda: code(frame))


def _report(node: Expression, observe: Observer, run: Callable[[], Value]) -> Value:
    try:
        value = run()
    except CelEvaluationError as error:
        observe(node, Raised(error))
        raise
    observe(node, value)
    return value
