"""Variables that an expression introduces: loop elements of macros, and bound names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dralloc.cel.closure_runtime import Code, EvaluationFrame, Run, finish
from dralloc.cel.code_builder import Loop
from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.values import DomainMap, Value, map_keys, type_of


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
