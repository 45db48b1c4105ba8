"""What devices look like where a selector matches none of them: typing errors in names and values show at once.

"`model` exists on 3 of 128 devices; values: a100, h100" says more than any evaluation of the selector could.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dralloc.allocator.explanation.selectors import compiled, conditions, holds
from dralloc.allocator.requests import Alternative
from dralloc.cel.errors import CelError
from dralloc.cel.explain import shown_value
from dralloc.cel.values import DomainMap, Value
from dralloc.snapshot.cluster import NodeView
from dralloc.snapshot.slices import DeviceShape, IndexedSlice

VALUES_SHOWN_MAX: Final = 6

# How many devices look so.
Shapes = Mapping[DeviceShape, int]


@dataclass(frozen=True, slots=True)
class AttributeStatistics:
    """An attribute or a capacity that a selector reads, on the devices that it was asked about."""

    name: str
    is_capacity: bool
    present: int
    total: int
    # Values with their type, as they are written, and how many devices have each; the most frequent first.
    values: tuple[tuple[str, int], ...]
    values_omitted: int = 0
    # What may have been meant, where no device has it.
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class ConditionStatistics:
    """One of several conditions of a selector, by itself. It fails where it can say neither yes nor no."""

    text: str
    holds: int
    fails: int


@dataclass(frozen=True, slots=True)
class SelectorStatistics:
    """A selector that none of the devices that it was asked about matches, or that fails on some."""

    # `class gpu` or `request main`.
    source: str
    expression: str
    asked: int
    matched: int
    failed: int
    conditions: tuple[ConditionStatistics, ...]
    attributes: tuple[AttributeStatistics, ...]


def shapes_on(views: Iterable[NodeView]) -> Shapes:
    """What the devices that these nodes see look like; devices that several nodes see count once."""
    slices: dict[IndexedSlice, None] = {}
    for view in views:
        slices.update((strip.slice, None) for strip in view.strips)
    return Counter(indexed.shape(bit) for indexed in slices for bit in range(len(indexed.devices)))


def selector_statistics(alternative: Alternative, shapes: Shapes) -> SelectorStatistics | None:
    """About the first selector of the request or its class that leaves no device, or that fails on devices."""
    for source, expression in _selectors(alternative):
        if not shapes:
            return None
        matching = {shape: count for shape, count in shapes.items() if holds(expression, shape)}
        failed = sum(count for shape, count in shapes.items() if holds(expression, shape) is None)
        if not matching or failed:
            return _statistics(source, expression, shapes, sum(matching.values()), failed)
        shapes = matching
    return None


def _selectors(alternative: Alternative) -> Iterator[tuple[str, str]]:
    for expression in alternative.profile.class_selectors:
        yield f"class {alternative.device_class.metadata.name}", expression
    for expression in alternative.profile.request_selectors:
        yield f"request {alternative.name}", expression


def _statistics(source: str, expression: str, shapes: Shapes, matched: int, failed: int) -> SelectorStatistics:
    parts = conditions(expression)
    selector = compiled(expression)
    reads = selector.checked.reads if selector is not None else None
    attributes = [
        *(
            _about(shapes, domain, name, is_capacity=False)
            for domain, name in sorted(reads.attributes if reads else ())
        ),
        *(_about(shapes, domain, name, is_capacity=True) for domain, name in sorted(reads.capacity if reads else ())),
    ]
    return SelectorStatistics(
        source,
        expression,
        sum(shapes.values()),
        matched,
        failed,
        tuple(_about_condition(part, shapes) for part in parts) if len(parts) > 1 else (),
        tuple(attributes),
    )


def _about_condition(condition: str, shapes: Shapes) -> ConditionStatistics:
    answers: Counter[bool | None] = Counter()
    for shape, count in shapes.items():
        answers[holds(condition, shape)] += count
    return ConditionStatistics(condition, answers[True], answers[None])


def _about(shapes: Shapes, domain: str, name: str, *, is_capacity: bool) -> AttributeStatistics:
    values: Counter[str] = Counter()
    known: set[tuple[str, str]] = set()
    for shape, count in shapes.items():
        domains = _domains(shape, is_capacity=is_capacity)
        known.update((each, str(identifier)) for each, inner in domains.items() for identifier in inner)
        value = domains.get(domain, {}).get(name)
        if value is not None:
            values[_shown(value)] += count
    return AttributeStatistics(
        name=f"{domain}/{name}",
        is_capacity=is_capacity,
        present=sum(values.values()),
        total=sum(shapes.values()),
        values=tuple(values.most_common(VALUES_SHOWN_MAX)),
        values_omitted=max(0, len(values) - VALUES_SHOWN_MAX),
        suggestion="" if values else _suggestion(domain, name, known),
    )


def _domains(shape: DeviceShape, *, is_capacity: bool) -> DomainMap:
    try:
        return shape.view.capacity if is_capacity else shape.view.attributes
    except CelError:
        return DomainMap()


def _shown(value: Value) -> str:
    """A value as people name it. Its type is shown where it is not plain text, because 1 and "1" never match."""
    if isinstance(value, str):
        return value if value.isprintable() and not value.isdecimal() else shown_value(value)
    return shown_value(value)


def _suggestion(domain: str, name: str, known: set[tuple[str, str]]) -> str:
    same_name = sorted(each for each, identifier in known if identifier == name)
    if same_name:
        return f"{same_name[0]}/{name}"
    here = [identifier for each, identifier in known if each == domain]
    if close := difflib.get_close_matches(name, sorted(here), n=1):
        return f"{domain}/{close[0]}"
    spelled = {identifier.lower(): (each, identifier) for each, identifier in sorted(known)}
    found = spelled.get(name.lower())
    return "/".join(found) if found else ""
