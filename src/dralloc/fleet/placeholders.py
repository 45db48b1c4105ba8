"""Text with holes, `gpu-{i}` or `{number // 4}`: what makes one description stand for many devices and nodes.

In a hole is whole-number arithmetic on the variables that are known there; `{{` is a brace.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any, Final

Variables = Mapping[str, int | str]

_HOLE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
HOLE_LENGTH_MAX: Final = 100


class BadTemplate(ValueError):
    """A text that cannot be filled; the message says what is wrong with it."""


def fill(tree: Any, variables: Variables) -> Any:
    """The tree with all holes in its texts and keys filled. What stands under `int` becomes a number."""
    match tree:
        case str():
            return fill_text(tree, variables)
        case list():
            return [fill(item, variables) for item in tree]
        case dict():
            filled = {fill_text(key, variables): fill(value, variables) for key, value in tree.items()}
            if isinstance(filled.get("int"), str):
                filled["int"] = _number(filled["int"])
            return filled
        case _:
            return tree


def fill_text(text: str, variables: Variables) -> str:
    if "{" not in text and "}" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return str(_evaluate(match[1], variables))

    return _HOLE.sub(replacement, text)


def escape(text: str) -> str:
    """The text without holes that fills to this one."""
    return text.replace("{", "{{").replace("}", "}}")


def repetitions(repeat: Any, variables: Variables) -> Iterator[Variables]:
    """The variables of each repetition: `repeat: 8` counts `i`, `repeat: {card: 2, part: 3}` counts both."""
    counts = {"i": repeat} if isinstance(repeat, int) else repeat
    if counts is None:
        yield variables
        return
    if not isinstance(counts, dict) or not all(isinstance(n, int) and 0 <= n <= 10_000 for n in counts.values()):
        raise BadTemplate(f"repeat: {repeat!r} is neither a number nor numbers by names")
    for indices in product(*(range(count) for count in counts.values())):
        yield {**variables, **dict(zip(counts, indices, strict=True))}


def _evaluate(expression: str, variables: Variables) -> int | str:
    # The parser and the evaluation recurse, so what they get is short.
    if len(expression) > HOLE_LENGTH_MAX:
        raise BadTemplate(f"{{{expression[:20]}…}} is too long")
    try:
        tree = _parse(expression)
        return variables[tree.id] if isinstance(tree, ast.Name) else _calculate(tree, variables)
    except KeyError as error:
        known = ", ".join(sorted(variables)) or "nothing"
        raise BadTemplate(f"{{{expression}}}: {error.args[0]} is not known here, only {known}") from None
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise BadTemplate(f"{{{expression}}} cannot be calculated: {error}") from None


@lru_cache(maxsize=1000)
def _parse(expression: str) -> ast.expr:
    return ast.parse(expression.strip(), mode="eval").body


def _calculate(tree: ast.expr, variables: Variables) -> int:
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            known = variables[name]
            if isinstance(known, str):
                raise TypeError(f"{name} is no number")
            return known
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_calculate(left, variables), _calculate(right, variables))
        case _:
            raise ValueError("only numbers, names and + - * // % may stand there")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadTemplate(f"int: {text!r} is no whole number") from None
