"""Misspelled names and values: those that no device has, and that nearly equal one that devices have."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dralloc.answers.explanation.attribute_statistics import Shapes, inventory_of, text_values
from dralloc.answers.explanation.selector_parts import compiled
from dralloc.cel.attribute_reads import Reads
from dralloc.cel.library.text_format import go_quoted
from dralloc.kube.inventory import ATTRIBUTE, Inventory, QualifiedName, UnknownName, find_unknown_names

NAMES_MAX: Final = 6
# Shorter values are often names of products, which differ in a letter on purpose.
VALUE_LENGTH_MIN: Final = 6
_QUOTED: Final = re.compile(r"""(["'])((?:(?!\1)[^\\])*)\1""")


@dataclass(frozen=True, slots=True)
class Correction:
    """A selector with other names or values, and what was changed, as an instruction."""

    expression: str
    what: str
    is_of_values: bool


class Vocabulary:
    """The names and values of devices."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    @cached_property
    def _inventory(self) -> Inventory:
        return inventory_of(self._shapes)

    def corrections(self, expression: str) -> Iterator[Correction]:
        """The expression with names that exist; else with values that exist."""
        selector = compiled(expression)
        if selector is None:
            return
        reads = selector.checked.reads
        unknown = [each for each in find_unknown_names(reads, self._inventory) if each.likely is not None]
        if unknown:
            yield _with_names(expression, unknown)
        elif self._shapes:
            yield from self._with_values(expression, reads)

    def _with_values(self, expression: str, reads: Reads) -> Iterator[Correction]:
        known = {value for name in reads.attributes for value in text_values(name, self._shapes)}
        not_values = {part for name in (*reads.attributes, *reads.capacity) for part in name}
        for found in _QUOTED.finditer(expression):
            value = found[2]
            meant = None if value in known | not_values else likely_value(value, known)
            if meant is not None:
                corrected = f"{expression[: found.start()]}{go_quoted(meant)}{expression[found.end() :]}"
                yield Correction(corrected, f"use {go_quoted(meant)} instead of {found[0]}", is_of_values=True)

    def attribute_for(self, name: QualifiedName) -> QualifiedName | None:
        """The attribute that was probably meant, if no device has this one."""
        reads = Reads(attributes=frozenset({name}), capacity=frozenset(), is_exact=True)
        return next((unknown.likely for unknown in find_unknown_names(reads, self._inventory)), None)


def _with_names(expression: str, unknown: Iterable[UnknownName]) -> Correction:
    told: list[str] = []
    for each in unknown:
        assert each.likely is not None, "only names with a likely one are corrected"
        domain, name = each.likely
        if domain != each.domain:
            expression = _swapped(expression, each.domain, domain)
        if name != each.name:
            expression = _swapped(expression, each.name, name)
            expression = re.sub(rf"(?<=[.?]){re.escape(each.name)}\b(?!\s*\()", name, expression)
        noun = "attribute" if each.sort == ATTRIBUTE else "capacity"
        told.append(f"read the {noun} {domain}/{name} instead of {each.domain}/{each.name}")
    return Correction(expression, " and ".join(told), is_of_values=False)


def _swapped(expression: str, old: str, new: str) -> str:
    """The expression with another text in place of this one."""
    return _QUOTED.sub(lambda found: go_quoted(new) if found[2] == old else found[0], expression)


def likely_names(name: str, known: Iterable[str]) -> list[str]:
    """Similar names, and the same name in other domains."""
    names = sorted(known)
    tail = name.rpartition("/")[2]
    same = [other for other in names if other.rpartition("/")[2] == tail]
    return list(dict.fromkeys((*same, *difflib.get_close_matches(name, names, n=NAMES_MAX))))[:NAMES_MAX]


def likely_value(value: str, known: Iterable[str]) -> str | None:
    """A value that differs only in case and punctuation, or, if it is long and has the same digits, in one letter."""
    candidates = sorted(known)
    equal = [each for each in candidates if _letters(each) == _letters(value)]
    if equal or len(value) < VALUE_LENGTH_MIN:
        return equal[0] if equal else None
    near = [each for each in candidates if _digits(each) == _digits(value) and _is_one_edit(value, each)]
    return near[0] if near else None


def _letters(value: str) -> str:
    return "".join(filter(str.isalnum, value)).casefold()


def _digits(value: str) -> str:
    return "".join(filter(str.isdecimal, value))


def _is_one_edit(one: str, other: str) -> bool:
    """True if a letter is replaced, inserted or removed, or two neighbours are swapped."""
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
