"""Errors of expressions, at compile time and at runtime.

Every error of an expression is a `CelError`; user input must not raise anything else out of this package. Compile
errors have positions and print in cel-go's format: `ERROR: <input>:LINE:COLUMN: text`, the line, and a mark below the
column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


class CelError(Exception):
    """An expression is invalid, or failed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a text. `offset` counts code points; None if the error has no position (a limit)."""

    message: str
    offset: int | None = None


class CelCompileError(CelError):
    """An expression that does not compile; `problems` holds all errors."""

    def __init__(self, text: str, problems: Iterable[Problem]) -> None:
        self.text = text
        self.problems = tuple(problems)
        super().__init__("\n".join(render_problem(text, problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[CelCompileError], tuple[str, tuple[Problem, ...]]]:
        return type(self), (self.text, self.problems)


class CelSyntaxError(CelCompileError):
    """The text is not a CEL expression."""


class CelTypeError(CelCompileError):
    """The expression uses an unknown name, or applies an operation to the wrong types."""


class CelProgramError(CelCompileError):
    """The expression type-checks, but a constant part of it always fails."""


class CelEvaluationError(CelError):
    """The expression failed at runtime: its value is an error."""


class CostLimitError(CelEvaluationError):
    """The expression exceeded its cost limit."""


# Longer lines are cut around the position.
_SHOWN_MAX: Final = 160


def render_problem(text: str, problem: Problem) -> str:
    """Returns the error with its position and line; a long line is cut."""
    if problem.offset is None:
        return f"ERROR: <input>:-1:0: {problem.message}"
    line_start = text.rfind("\n", 0, problem.offset) + 1
    line_end = text.find("\n", problem.offset)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    number = text.count("\n", 0, problem.offset) + 1
    column = problem.offset - line_start
    place = f"ERROR: <input>:{number}:{column + 1}: {problem.message}"
    start = max(0, column - _SHOWN_MAX // 2) if len(line) > _SHOWN_MAX else 0
    shown = line[start : start + _SHOWN_MAX].replace("\t", " ")
    return f"{place}\n | {shown}\n | {'.' * (column - start)}^"
