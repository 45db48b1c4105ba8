"""Parts of sentences for users: counts, lists of names, expressions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NAMES_SHOWN_MAX: Final = 3
EXPRESSION_SHOWN_MAX: Final = 100


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def first_few(names: Iterable[str], noun: str) -> str:
    """The first few names, and how many more there are."""
    known = list(names)
    shown = ", ".join(known[:NAMES_SHOWN_MAX])
    more = len(known) - NAMES_SHOWN_MAX
    return f"{shown} and {counted(more, f'more {noun}')}" if more > 0 else shown


def shortened(expression: str) -> str:
    """An expression as part of a sentence."""
    text = " ".join(expression.split())
    return text if len(text) <= EXPRESSION_SHOWN_MAX else f"{text[: EXPRESSION_SHOWN_MAX - 1]}…"
