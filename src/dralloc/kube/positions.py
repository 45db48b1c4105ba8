"""Positions of the parts of a document in its text."""

from __future__ import annotations

from dataclasses import dataclass, field

Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The start of a part; lines and columns count from 1."""

    line: int
    column: int


class SourceError(ValueError):
    """A text that cannot be parsed, and the position of the error."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position


def position_of(text: str, offset: int) -> Position:
    return Position(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


@dataclass(slots=True)
class _Container:
    steps: Steps
    # The member whose value comes next; None if its name comes next.
    name: str | None = None
    # The next index, if the container is a list.
    index: int | None = None


@dataclass(slots=True)
class PositionTracker:
    """Follows a parser through one document, and records where each member (by its name) and each item begins."""

    positions: dict[Steps, Position] = field(default_factory=dict)
    _open: list[_Container] = field(default_factory=list)

    def begin_object(self, position: Position) -> None:
        self._open.append(_Container(self._next_value(position)))

    def begin_list(self, position: Position) -> None:
        self._open.append(_Container(self._next_value(position), index=0))

    def end(self) -> bool:
        """Leaves a container; true if it was the outermost one."""
        self._open.pop()
        return not self._open

    def scalar(self, text: str, position: Position) -> None:
        """Records a name where a name is expected, and a value elsewhere."""
        top = self._open[-1] if self._open else None
        if top is not None and top.index is None and top.name is None:
            top.name = text
            # The first of several equal names counts.
            self.positions.setdefault((*top.steps, text), position)
        else:
            self._next_value(position)

    def _next_value(self, position: Position) -> Steps:
        if not self._open:
            self.positions.setdefault((), position)
            return ()
        top = self._open[-1]
        if top.index is None:
            # A container as a key has no text to find it by.
            steps = (*top.steps, top.name or "")
            top.name = None
            return steps
        steps = (*top.steps, top.index)
        top.index += 1
        self.positions[steps] = position
        return steps


def nearest(positions: dict[Steps, Position], steps: Steps) -> Position:
    """Returns the position of the part, or of the closest enclosing part that has one."""
    while steps and steps not in positions:
        steps = steps[:-1]
    return positions.get(steps, Position(1, 1))
