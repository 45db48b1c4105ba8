"""Text with placeholders such as `gpu-{i}` or `{number // 4}`: one template describes many devices and nodes.

A placeholder holds integer arithmetic on variables; `{{` stands for a brace.
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

_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
PLACEHOLDER_LENGTH_MAX: Final = 100


class BadTemplate(ValueError):
    """The text has an invalid placeholder; the message says which."""


def fill(tree: Any, variables: Variables) -> Any:
    """The tree with the placeholders in all texts and keys filled in. The value of a key `int` becomes a number."""
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

    return _PLACEHOLDER.sub(replacement, text)


def escape(text: str) -> str:
    """The template without placeholders that gives this text."""
    return text.replace("{", "{{").replace("}", "}}")


def repetitions(repeat: Any, variables: Variables) -> Iterator[Variables]:
    """The variables of each repetition: `repeat: 8` counts `i`, `repeat: {card: 2, part: 3}` counts both."""
    counts = {"i": repeat} if isinstance(repeat, int) else repeat
    if counts is None:
        yield variables
        return
    if not isinstance(counts, dict) or not all(isinstance(n, int) and 0 <= n <= 10_000 for n in counts.values()):
        raise BadTemplate(f"repeat: {repeat!r} is neither a number nor a map of names to numbers")
    for indices in product(*(range(count) for count in counts.values())):
        yield {**variables, **dict(zip(counts, indices, strict=True))}


def _evaluate(expression: str, variables: Variables) -> int | str:
    # Parser and evaluation are recursive, so the length is limited.
    if len(expression) > PLACEHOLDER_LENGTH_MAX:
        raise BadTemplate(f"{{{expression[:20]}…}} is too long")
    try:
        tree = _parse(expression)
        return variables[tree.id] if isinstance(tree, ast.Name) else _calculate(tree, variables)
    except KeyError as error:
        known = ", ".join(sorted(variables)) or "none"
        raise BadTemplate(f"{{{expression}}}: unknown variable {error.args[0]}; known are {known}") from None
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise BadTemplate(f"{{{expression}}} cannot be evaluated: {error}") from None


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
                raise TypeError(f"{name} is not a number")
            return known
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_calculate(left, variables), _calculate(right, variables))
        case _:
            raise ValueError("only numbers, variables and + - * // % are allowed")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadTemplate(f"int: {text!r} is not an integer") from None
