"""What can be wrong with an expression, before and while it runs.

Everything that an expression can do wrong ends in a `CelError`; nothing else may leave this package because of
what a user wrote. Faults found before running carry positions and print in the form that CEL users know from
Kubernetes: `ERROR: <input>:LINE:COLUMN: text`, the line, and a mark below the column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


class CelError(Exception):
    """An expression is wrong, or failed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a text. `offset` counts code points; None when the fault has no place (a limit)."""

    message: str
    offset: int | None = None


class CelCompileError(CelError):
    """An expression that cannot be used; `problems` holds everything that was found."""

    def __init__(self, text: str, problems: Iterable[Problem]) -> None:
        self.text = text
        self.problems = tuple(problems)
        super().__init__("\n".join(render_problem(text, problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[CelCompileError], tuple[str, tuple[Problem, ...]]]:
        return type(self), (self.text, self.problems)


class CelSyntaxError(CelCompileError):
    """The text is not an expression of the language."""


class CelTypeError(CelCompileError):
    """The expression names something that does not exist, or applies an operation to the wrong types."""


class CelProgramError(CelCompileError):
    """The expression type-checks, but a constant part of it can be seen to fail."""


class CelEvaluationError(CelError):
    """The expression failed while it ran: its value is an error."""


class CostLimitError(CelEvaluationError):
    """The expression was stopped because it cost more than it may."""


# More of a line than this does not help to find the place in it.
_SHOWN_MAX: Final = 160


def render_problem(text: str, problem: Problem) -> str:
    """The fault with its place and the line it is in, or as much of the line as can be overlooked."""
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
