"""The operators of the language: how strongly they bind, and the functions that they call."""

from __future__ import annotations

from typing import Final

CONDITIONAL, OR, AND, RELATION, ADDITION, MULTIPLICATION, PREFIX, MEMBER = range(8)
# Of operators with two operands.
PRECEDENCE: Final = {
    "||": OR,
    "&&": AND,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), RELATION),
    **dict.fromkeys(("+", "-"), ADDITION),
    **dict.fromkeys(("*", "/", "%"), MULTIPLICATION),
}
OPERATOR_FUNCTIONS: Final = {text: "@in" if text == "in" else f"_{text}_" for text in PRECEDENCE}
