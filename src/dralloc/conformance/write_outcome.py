"""The outcome of a write, and how it differs from the recorded one: code, causes of an error, object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

MADE_UP: Final = "<generated>"
# Fields that recorded objects omit.
LEFT_OUT: Final = frozenset({"uid", "creationTimestamp", "resourceVersion", "managedFields", "generation", "selfLink"})


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The answer to a write. Causes are pairs of a reason and a field."""

    code: int
    message: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    object: Any = None


def compare_outcome(line: Mapping[str, Any], outcome: WriteOutcome) -> Iterator[str]:
    """Yields all compared differences."""
    if line["code"] != outcome.code:
        expected = _shown(line.get("causes") or line.get("message"))
        got = _shown(outcome.causes) if outcome.causes else outcome.message
        yield f"code: expected {line['code']} ({expected}), got {outcome.code}: {got}"
    elif outcome.code == 422:
        yield from _compare_causes(line, sorted(map(list, outcome.causes)))
    elif outcome.code < 300:
        yield from _compare_object(line, outcome.object)


def _compare_causes(line: Mapping[str, Any], causes: list[list[str]]) -> Iterator[str]:
    expected = sorted(line["causes"])
    for cause in _difference(expected, causes):
        yield f"cause missing: {cause[0]} {cause[1]} (of {line['message']!r})"
    for cause in _difference(causes, expected):
        yield f"unexpected cause: {cause[0]} {cause[1]}"


def _difference(causes: list[list[str]], others: list[list[str]]) -> list[list[str]]:
    """Returns the multiset difference of the causes."""
    left = list(others)
    missing = []
    for cause in causes:
        if cause in left:
            left.remove(cause)
        else:
            missing.append(cause)
    return missing


def _compare_object(line: Mapping[str, Any], got: Any) -> Iterator[str]:
    sent = json.dumps([line["body"], line.get("setup")])
    expected, comparable = _comparable(line["object"], sent), _comparable(got, sent)
    if comparable != expected:
        yield f"object: expected {_shown(expected)}, got {_shown(comparable)}"


def _comparable(tree: Any, sent: str) -> Any:
    """Returns the object without server-generated values; a time that the request did not contain is generated."""
    if isinstance(tree, list):
        return [_comparable(item, sent) for item in tree]
    if not isinstance(tree, dict):
        return tree
    comparable = {name: _comparable(value, sent) for name, value in tree.items() if name != "metadata"}
    if "metadata" in tree:
        comparable["metadata"] = {name: value for name, value in tree["metadata"].items() if name not in LEFT_OUT}
    time = tree.get("timeAdded")
    if time is not None and f'"{time}"' not in sent:
        comparable["timeAdded"] = MADE_UP
    return comparable


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
