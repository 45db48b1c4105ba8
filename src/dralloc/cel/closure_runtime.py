"""The runtime of closures: frames, chains of steps, and the observer for explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dralloc.cel.code_planner import Loop
from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.meter import COST_MAX, Meter
from dralloc.cel.syntax import Expression
from dralloc.cel.values import MISSING, DomainMap, Value, map_keys, type_of


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


# --- Loops ----------------------------------------------------------------------------------------------------------
# Variables that an expression introduces: loop elements of macros, and bound names.


class LazyValue:
    """The value of `cel.bind`, computed once on first use."""

    __slots__ = ("_initial", "_slot")

    def __init__(self, slot: int, initial: Run) -> None:
        self._slot = slot
        self._initial = initial

    def get(self, frame: EvaluationFrame) -> Value:
        value = self._initial(frame)
        if value.__class__ is DomainMap and not value:
            # Kubernetes replaces an empty map by a mutable one, and so loses the default for missing domains.
            value = {}
        frame.slots[self._slot] = value
        return value


def loop_over(loop: Loop[Code]) -> Callable[[EvaluationFrame], Iterator[None]]:
    """Iterates over a list or map, and sets the variables to each element."""
    elements, slot, second_slot = finish(loop.range), loop.slot, loop.second_slot

    def over_elements(frame: EvaluationFrame) -> Iterator[None]:
        slots = frame.slots
        for element in elements_of(elements(frame)):
            slots[slot] = element
            yield

    def over_pairs(frame: EvaluationFrame) -> Iterator[None]:
        slots = frame.slots
        assert second_slot is not None
        for slots[slot], slots[second_slot] in pairs_of(elements(frame)):
            yield

    return over_elements if second_slot is None else over_pairs


def elements_of(value: Value) -> Iterable[Value]:
    kind = value.__class__
    if kind is list:
        elements: list[Value] = value
        return elements
    if kind is dict or kind is DomainMap:
        return map_keys(value)
    raise CelEvaluationError(f"got '{type_of(value).name}', expected iterable type")


def pairs_of(value: Value) -> Iterable[tuple[Value, Value]]:
    kind = value.__class__
    if kind is list:
        return enumerate(value)
    if kind is dict or kind is DomainMap:
        return zip(map_keys(value), value.values(), strict=True)
    raise CelEvaluationError(f"unsupported comprehension range type: {type_of(value).name}")
