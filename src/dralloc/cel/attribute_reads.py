"""The attributes and capacities that an expression reads, as far as its text shows.

Used to warn that no device has an attribute, and to decide whether a change of a device can change a cached result.
Only literal names count: an expression that iterates, or computes a name, may read more, and then `is_exact` is false.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dralloc.cel import syntax
from dralloc.cel.syntax import walk


@dataclass(frozen=True, slots=True)
class Reads:
    """Pairs of domain and name. If `is_exact`, the result depends only on these and the driver."""

    attributes: frozenset[tuple[str, str]]
    capacity: frozenset[tuple[str, str]]
    is_exact: bool


def find_reads(root: syntax.Expression) -> Reads:
    finder = _Finder()
    walk(root, finder.visit)
    finder.use(root)
    return Reads(
        attributes=frozenset((domain, name) for field, domain, name in finder.found if field == "attributes"),
        capacity=frozenset((domain, name) for field, domain, name in finder.found if field == "capacity"),
        is_exact=finder.is_exact,
    )


# The path of a value: the device (empty), one of its two maps, or a domain in it.
_Place = tuple[str, ...]

_MAPS: Final = frozenset({"attributes", "capacity"})
_STEPS: Final = frozenset({"_[_]", "_[?_]", "_?._"})


class _Finder:
    def __init__(self) -> None:
        self.places: dict[int, _Place] = {}
        self.names: dict[str, list[_Place | None]] = {"device": [()]}
        self.found: set[tuple[str, str, str]] = set()
        self.is_exact = True

    def visit(self, node: syntax.Expression) -> Iterator[syntax.Expression] | None:
        if isinstance(node, syntax.Literal):
            return None
        if isinstance(node, syntax.Identifier):
            stack = self.names.get(node.name.removeprefix("."))
            if stack and (place := stack[-1]) is not None:
                self.places[node.id] = place
            return None
        if isinstance(node, syntax.Select):
            return self._visit_select(node)
        if isinstance(node, syntax.Call):
            return self._visit_call(node)
        if isinstance(node, syntax.Comprehension):
            return self._visit_comprehension(node)
        return self._visit_literal(node)

    def use(self, node: syntax.Expression) -> None:
        """Records that the node's value itself is used; for a whole map, the reads are no longer exact."""
        if node.id in self.places:
            self.is_exact = False

    def _visit_select(self, node: syntax.Select) -> Iterator[syntax.Expression]:
        yield node.operand
        if node.operand.id in self.places:
            self._step(node, self.places[node.operand.id], node.field)

    def _visit_call(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        yield from node.arguments
        if node.target is not None:
            yield node.target
        if node.function in _STEPS and node.arguments[0].id in self.places:
            self._visit_step(node)
        elif node.function == "@in" and self._is_key_of_domain(node):
            self._step(node, self.places[node.arguments[1].id], str(_text(node.arguments[0])))
        elif node.function in ("value", "hasValue") and node.target is not None and node.target.id in self.places:
            # The optional of a domain: it always has a value.
            if node.function == "value":
                self.places[node.id] = self.places[node.target.id]
        else:
            for operand in (*node.arguments, *(() if node.target is None else (node.target,))):
                self.use(operand)

    def _visit_step(self, node: syntax.Call) -> None:
        key = _text(node.arguments[1])
        if key is None:
            self.use(node.arguments[0])
            self.use(node.arguments[1])
        else:
            self._step(node, self.places[node.arguments[0].id], key)

    def _is_key_of_domain(self, node: syntax.Call) -> bool:
        place = self.places.get(node.arguments[1].id)
        return place is not None and len(place) == 2 and _text(node.arguments[0]) is not None

    def _step(self, node: syntax.Expression, place: _Place, name: str) -> None:
        if len(place) == 2:
            field, domain = place
            self.found.add((field, domain, name))
        elif place or name in _MAPS:
            self.places[node.id] = (*place, name)

    def _visit_comprehension(self, node: syntax.Comprehension) -> Iterator[syntax.Expression]:
        yield node.range
        yield node.initial
        self.use(node.range)
        variables = [name for name in (node.variable, node.second_variable) if name is not None]
        self._push(node.accumulator, self.places.get(node.initial.id))
        for name in variables:
            self._push(name, None)
        yield node.condition
        yield node.step
        for name in variables:
            self.names[name].pop()
        yield node.result
        self.names[node.accumulator].pop()
        if node.result.id in self.places:
            self.places[node.id] = self.places[node.result.id]

    def _push(self, name: str, place: _Place | None) -> None:
        self.names.setdefault(name, []).append(place)

    def _visit_literal(
        self, node: syntax.ListLiteral | syntax.MapLiteral | syntax.MessageLiteral
    ) -> Iterator[syntax.Expression]:
        parts: list[syntax.Expression] = []
        if isinstance(node, syntax.ListLiteral):
            parts += node.elements
        elif isinstance(node, syntax.MapLiteral):
            parts += [part for entry in node.entries for part in (entry.key, entry.value)]
        else:
            parts += [entry.value for entry in node.entries]
        yield from parts
        for part in parts:
            self.use(part)


def _text(node: syntax.Expression) -> str | None:
    return node.value if isinstance(node, syntax.Literal) and isinstance(node.value, str) else None
