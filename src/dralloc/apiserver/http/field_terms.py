"""The terms of a field selector, read once for authorization and for the query, so that both mean the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from dralloc.primitives.errors import BadRequest

# One term: a field, an operator and a value, with separators escaped by `\`.
_TERM: Final = re.compile(r"(?P<field>(?:[^\\,=!]|\\.)*)(?P<operator>!=|==|=)(?P<value>(?:[^\\,=]|\\[\\,=])*)")


class FieldTerm(Struct, frozen=True, gc=False):
    """A field that must, or must not, have a value."""

    field: str
    value: str
    negated: bool


def read_field_terms(selector: str) -> Iterator[FieldTerm]:
    """Yields the terms of a selector such as `spec.nodeName=n1,status.phase!=Failed`; raises BadRequest."""
    place = 0
    while place < len(selector):
        match = _TERM.match(selector, place)
        if match is None or match.end() not in (len(selector), selector.find(",", match.end())):
            raise BadRequest(f"invalid selector: '{selector}'; can't understand '{selector[place:]}'")
        yield FieldTerm(match["field"].strip(), _unescape(match["value"]), match["operator"] == "!=")
        place = match.end() + 1


def escape_value(value: str) -> str:
    """The value as it is written in a selector."""
    return re.sub(r"([\\,=])", r"\\\1", value)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text
