"""What devices look like where a selector matches none of them: typing errors in names and values show at once.

"`model` exists on 3 of 128 devices; values: a100, h100" says more than any evaluation of the selector could.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dralloc.answers.explanation.selector_parts import compiled, conditions, holds
from dralloc.cel.attribute_reads import Reads
from dralloc.cel.errors import CelError
from dralloc.cel.selector_explanation import shown_value
from dralloc.cel.values import DomainMap, Value
from dralloc.devices.allocator.requests import Alternative
from dralloc.devices.slices import DeviceShape, IndexedSlice
from dralloc.devices.snapshot import NodeView
from dralloc.kube.inventory import ATTRIBUTE, CAPACITY, Inventory, QualifiedName, find_unknown_names
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.semver import Semver

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
    for source, expression in selectors_of(alternative):
        if not shapes:
            return None
        answers = {shape: holds(expression, shape) for shape in shapes}
        matching = {shape: count for shape, count in shapes.items() if answers[shape]}
        failed = sum(count for shape, count in shapes.items() if answers[shape] is None)
        if not matching or failed:
            return _statistics(source, expression, shapes, sum(matching.values()), failed)
        shapes = matching
    return None


def selectors_of(alternative: Alternative) -> Iterator[tuple[str, str]]:
    """The selectors of the class and of the request, each with where it is written."""
    for expression in alternative.criteria.class_selectors:
        yield f"class {alternative.device_class.metadata.name}", expression
    for expression in alternative.criteria.request_selectors:
        yield f"request {alternative.name}", expression


def _statistics(source: str, expression: str, shapes: Shapes, matched: int, failed: int) -> SelectorStatistics:
    parts = conditions(expression)
    selector = compiled(expression)
    return SelectorStatistics(
        source,
        expression,
        sum(shapes.values()),
        matched,
        failed,
        tuple(_about_condition(part, shapes) for part in parts) if len(parts) > 1 else (),
        tuple(_about_names(selector.checked.reads, shapes)) if selector is not None else (),
    )


def _about_condition(condition: str, shapes: Shapes) -> ConditionStatistics:
    answers: Counter[bool | None] = Counter()
    for shape, count in shapes.items():
        answers[holds(condition, shape)] += count
    return ConditionStatistics(condition, answers[True], answers[None])


# --- Names and values ---------------------------------------------------------------------------------------------------


def _about_names(reads: Reads, shapes: Shapes) -> Iterator[AttributeStatistics]:
    inventory = inventory_of(shapes)
    meant = {
        (unknown.sort, (unknown.domain, unknown.name)): "/".join(unknown.likely)
        for unknown in find_unknown_names(reads, inventory)
        if unknown.likely
    }
    for sort, asked in ((ATTRIBUTE, reads.attributes), (CAPACITY, reads.capacity)):
        for name in sorted(asked):
            values = _values(sort, name, shapes)
            yield AttributeStatistics(
                name="/".join(name),
                is_capacity=sort == CAPACITY,
                present=inventory.count(sort, name),
                total=inventory.device_count,
                values=tuple(values.most_common(VALUES_SHOWN_MAX)),
                values_omitted=max(0, len(values) - VALUES_SHOWN_MAX),
                suggestion=meant.get((sort, name), ""),
            )


def inventory_of(shapes: Shapes) -> Inventory:
    counts: dict[str, Counter[QualifiedName]] = {ATTRIBUTE: Counter(), CAPACITY: Counter()}
    for shape, count in shapes.items():
        for sort, counter in counts.items():
            for domain, names in _domains(sort, shape).items():
                for name in names:
                    counter[domain, str(name)] += count
    return Inventory(sum(shapes.values()), counts[ATTRIBUTE], counts[CAPACITY])


def _values(sort: str, name: QualifiedName, shapes: Shapes) -> Counter[str]:
    domain, identifier = name
    values: Counter[str] = Counter()
    for shape, count in shapes.items():
        value = _domains(sort, shape)[domain].get(identifier)
        if value is not None:
            values[_shown(value)] += count
    return values


def text_values(name: QualifiedName, shapes: Shapes) -> set[str]:
    """The texts that devices have for an attribute."""
    domain, identifier = name
    found = (_domains(ATTRIBUTE, shape)[domain].get(identifier) for shape in shapes)
    return {value for value in found if isinstance(value, str)}


def _domains(sort: str, shape: DeviceShape) -> DomainMap:
    try:
        return shape.view.attributes if sort == ATTRIBUTE else shape.view.capacity
    except CelError:
        return DomainMap()


def _shown(value: Value) -> str:
    """A value as people name it. Text is quoted where it looks like something else, because 1 and "1" never match."""
    if isinstance(value, str) and value.isprintable() and not value.lstrip("-").isdecimal():
        return value
    return str(value) if isinstance(value, Quantity | Semver) else shown_value(value)
