"""Calls of library functions, and their charges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from dralloc.cel.closure_runtime import EvaluationFrame, Run, Step
from dralloc.cel.library.functions import Function
from dralloc.cel.values import Value


@cache
def at_nominal_cost(function: Function) -> Function:
    """Returns the function with a cost of one for every call."""
    return Function(function.name, [replace(overload, cost=None) for overload in function.overloads])


def call_function(frame: EvaluationFrame, function: Function, *arguments: Value) -> Value:
    overload = function.overload_for(*arguments)
    frame.charge(1 if overload.cost is None else overload.cost(*arguments))
    implementation = overload.implementation
    return implementation(frame, *arguments) if overload.is_metered else implementation(*arguments)


def step_of_many(function: Function, rest: Sequence[Run]) -> Step:
    return lambda frame, value: call_function(frame, function, value, *[part(frame) for part in rest])


def step_of_one(function: Function) -> Step:
    """`call_function` specialised for one argument; the next function is for two. Nearly all calls have one or two."""
    found = function.found

    def step(frame: EvaluationFrame, operand: Value) -> Value:
        overload = found.get((operand.__class__,)) or function.overload_for(operand)
        frame.charge(1 if overload.cost is None else overload.cost(operand))
        implementation = overload.implementation
        return implementation(frame, operand) if overload.is_metered else implementation(operand)

    return step


def step_of_two(function: Function, second: Run) -> Step:
    found = function.found

    def step(frame: EvaluationFrame, left: Value) -> Value:
        right = second(frame)
        overload = found.get((left.__class__, right.__class__)) or function.overload_for(left, right)
        frame.charge(1 if overload.cost is None else overload.cost(left, right))
        implementation = overload.implementation
        return implementation(frame, left, right) if overload.is_metered else implementation(left, right)

    return step
