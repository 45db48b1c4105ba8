"""What a parser has open: one frame for each bracket and each part of a conditional."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from dralloc.cel.operators import PREFIX, RELATION
from dralloc.cel.syntax import Expression, FieldEntry, MapEntry
from dralloc.cel.tree_builder import PendingOperator


class FrameKind(Enum):
    """What a frame parses: the inside of a bracket, or a part of a conditional."""

    WHOLE = auto()
    PARENTHESES = auto()
    ARGUMENTS = auto()
    INDEX = auto()
    LIST = auto()
    MAP = auto()
    MESSAGE = auto()
    THEN = auto()
    ELSE = auto()


CLOSERS: Final = {
    FrameKind.PARENTHESES: ")",
    FrameKind.ARGUMENTS: ")",
    FrameKind.INDEX: "]",
    FrameKind.LIST: "]",
    FrameKind.MAP: "}",
    FrameKind.MESSAGE: "}",
}
HOLDS_ONE: Final = frozenset({FrameKind.PARENTHESES, FrameKind.INDEX})


@dataclass(slots=True)
class Frame:
    """One open bracket (or part of a conditional), and what was parsed inside it so far."""

    kind: FrameKind
    offset: int
    # Number of open grammar rules of each sort outside this frame.
    expression_depth: int = 1
    relation_depth: int = 0
    calculation_depth: int = 0
    # The name of the call or index operator, or the message's type name.
    name: str = ""
    # The call's target, the indexed value, the map entry's key, or the condition.
    subject: Expression | None = None
    consequence: Expression | None = None
    # Pending operands and operators.
    operands: list[Expression] = field(default_factory=list)
    operators: list[PendingOperator] = field(default_factory=list)
    # The comma-separated items parsed so far.
    items: list[Expression] = field(default_factory=list)
    entries: list[MapEntry] = field(default_factory=list)
    fields: list[FieldEntry] = field(default_factory=list)
    optional: set[int] = field(default_factory=set)
    entry_name: str = ""
    entry_offset: int = 0
    entry_is_optional: bool = False

    def open_rules(self) -> tuple[int, int]:
        """Returns how many relation and calculation rules are open at the next operand."""
        relation, calculation = self.relation_depth + 1, self.calculation_depth + 1
        for operator in reversed(self.operators):
            if operator.precedence < RELATION:
                break
            if operator.precedence == RELATION:
                relation += 1
            elif operator.precedence < PREFIX:
                calculation += 1
        return relation, calculation
