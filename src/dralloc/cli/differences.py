"""In what a manifest differs from the object that a server has: for refusals that say no more than that it must not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

Steps = tuple[str | int, ...]

SHOWN_MAX: Final = 5
SHOWN_LENGTH_MAX: Final = 60


class _Absent:
    """Stands where one side says nothing."""


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Difference:
    steps: Steps
    stored: Any
    stated: Any

    def __str__(self) -> str:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps).removeprefix(".")
        if self.stored is ABSENT:
            return f"{path} is not there, and cannot become {_shown(self.stated)}"
        if self.stated is ABSENT:
            return f"{path} is {_shown(self.stored)}, and the manifest leaves it out"
        return f"{path} is {_shown(self.stored)}, and cannot become {_shown(self.stated)}"


def find_differences(stored: Any, stated: Any, within: Steps = ()) -> list[Difference]:
    """Where the manifest says something else. What it leaves out counts only if that is all: a server fills in defaults."""
    found = list(_walk(_at(stored, within), _at(stated, within), within))
    return [each for each in found if each.stated is not ABSENT] or found


def told(differences: Sequence[Difference | str]) -> Iterator[str]:
    """The first few in words, and how many more there are."""
    yield from map(str, differences[:SHOWN_MAX])
    if (more := len(differences) - SHOWN_MAX) > 0:
        yield f"and {more} more"


def _walk(stored: Any, stated: Any, within: Steps) -> Iterator[Difference]:
    pending = [(stored, stated, within)]
    while pending:
        one, other, steps = pending.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            names = [*other, *(name for name in one if name not in other)]
            pairs = [(one.get(name, ABSENT), other.get(name, ABSENT), (*steps, name)) for name in names]
        elif isinstance(one, list) and isinstance(other, list):
            indices = range(max(len(one), len(other)))
            pairs = [(_item(one, index), _item(other, index), (*steps, index)) for index in indices]
        else:
            pairs = []
            if one != other:
                yield Difference(steps, one, other)
        pending.extend(reversed(pairs))


def _item(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else ABSENT


def _at(document: Any, steps: Steps) -> Any:
    for step in steps:
        document = document.get(step, ABSENT) if isinstance(document, dict) else ABSENT
    return document


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}…"
