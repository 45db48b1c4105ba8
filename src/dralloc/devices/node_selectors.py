"""Node selectors: which nodes they match, and an index to find the selectors that may match a node.

The rules of node affinity: terms are alternatives, all requirements of a term must hold, an empty term matches
nothing. Every node that a selector matches has at least one of the selector's anchors, so an index by anchor finds
the few selectors that are worth evaluating for a node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dralloc.kube.meta_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dralloc.primitives import names

NAME_FIELD: Final = "metadata.name"


class NodeSelectorError(ValueError):
    """An invalid node selector."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What an allocation depends on of a node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    declared_features: frozenset[str] = frozenset()


class Anchor(NamedTuple):
    """A label of a node, or its name under the key of a field."""

    key: str
    value: str


# An anchor of every node, for selectors that match by anything but equality.
ANYWHERE: Final = Anchor("", "")


def anchors_of_node(node: NodeFacts) -> Iterator[Anchor]:
    yield ANYWHERE
    yield name_anchor(node.name)
    for key, value in node.labels.items():
        yield Anchor(key, value)


def name_anchor(node_name: str) -> Anchor:
    # No label has this key: the prefix of a label key cannot be empty.
    return Anchor(f"/{NAME_FIELD}", node_name)


def anchors(selector: NodeSelector) -> frozenset[Anchor]:
    """Every node that the selector matches has one of these anchors. An invalid selector concerns every node."""
    terms = _terms(selector)
    try:
        _check(terms)
    except NodeSelectorError:
        return frozenset({ANYWHERE})
    return frozenset(anchor for term in terms for anchor in _anchors_of_term(term))


def matches(selector: NodeSelector, node: NodeFacts) -> bool:
    """True if the selector matches the node. Raises NodeSelectorError if any term is invalid, even if another matches."""
    terms = _terms(selector)
    _check(terms)
    return any(_term_matches(term, node) for term in terms)


class IndexedSelector:
    """A selector that is asked about many nodes: it is checked once, and only terms that may match a node are looked at."""

    def __init__(self, selector: NodeSelector) -> None:
        terms = _terms(selector)
        self._fault: NodeSelectorError | None = None
        self._terms: dict[Anchor, list[_IndexedTerm]] = {}
        try:
            _check(terms)
        except NodeSelectorError as fault:
            self._fault = fault
            return
        for term in terms:
            indexed = _IndexedTerm(term, [(each, frozenset(each.values)) for each in term.match_expressions])
            for anchor in _anchors_of_term(term):
                self._terms.setdefault(anchor, []).append(indexed)

    def matches(self, node: NodeFacts) -> bool:
        """As `matches` does."""
        if self._fault is not None:
            raise self._fault.with_traceback(None)
        return any(indexed.matches(node) for anchor in anchors_of_node(node) for indexed in self._terms.get(anchor, ()))


class _IndexedTerm(NamedTuple):
    term: NodeSelectorTerm
    # With the values as a set: a user may list hundreds of thousands.
    expressions: list[tuple[NodeSelectorRequirement, frozenset[str]]]

    def matches(self, node: NodeFacts) -> bool:
        return all(
            _label_matches(requirement, values, node.labels) for requirement, values in self.expressions
        ) and all(_field_matches(requirement, node) for requirement in self.term.match_fields)


def _terms(selector: NodeSelector) -> list[NodeSelectorTerm]:
    return [term for term in selector.node_selector_terms or () if term.match_expressions or term.match_fields]


def _anchors_of_term(term: NodeSelectorTerm) -> Iterable[Anchor]:
    for requirement in term.match_fields:
        if requirement.key == NAME_FIELD and requirement.operator == "In":
            return [name_anchor(value) for value in requirement.values]
    for requirement in term.match_expressions:
        if requirement.operator == "In":
            return [Anchor(requirement.key, value) for value in requirement.values]
    return [ANYWHERE]


def _term_matches(term: NodeSelectorTerm, node: NodeFacts) -> bool:
    by_label = all(
        _label_matches(requirement, requirement.values, node.labels) for requirement in term.match_expressions
    )
    return by_label and all(_field_matches(requirement, node) for requirement in term.match_fields)


def _label_matches(requirement: NodeSelectorRequirement, values: Collection[str], labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            number = _integer(value)
            return number is not None and number > int(requirement.values[0])
        case _:
            number = _integer(value)
            return number is not None and number < int(requirement.values[0])


def _field_matches(requirement: NodeSelectorRequirement, node: NodeFacts) -> bool:
    value = node.name if requirement.key == NAME_FIELD else ""
    return (value in requirement.values) == (requirement.operator == "In")


# --- Validity -----------------------------------------------------------------------------------------------------


def _check(terms: Iterable[NodeSelectorTerm]) -> None:
    for term in terms:
        for requirement in term.match_expressions:
            if fault := _fault_of_label_requirement(requirement):
                raise NodeSelectorError(f"node selector requirement on label {requirement.key!r}: {fault}")
        for requirement in term.match_fields:
            if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
                raise NodeSelectorError(
                    f"node selector requirement on field {requirement.key!r}: needs In or NotIn with one value"
                )


def _fault_of_label_requirement(requirement: NodeSelectorRequirement) -> str | None:
    values = requirement.values
    if names.label_key(requirement.key):
        return "not a label key"
    match requirement.operator:
        case "In" | "NotIn":
            if not values:
                return f"{requirement.operator} needs values"
        case "Exists" | "DoesNotExist":
            if values:
                return f"{requirement.operator} takes no values"
        case "Gt" | "Lt":
            if len(values) != 1 or _integer(values[0]) is None:
                return f"{requirement.operator} needs one integer"
        case _:
            return f"{requirement.operator!r} is not an operator"
    return "not a label value" if any(names.label_value(value) for value in values) else None


def _integer(text: str | None) -> int | None:
    """The 64-bit integer in the text, as Kubernetes parses it, or None."""
    if (
        text is None
        or not text.isascii()
        or not text.lstrip("+-").isdecimal()
        or len(text) - len(text.lstrip("+-")) > 1
    ):
        return None
    number = int(text) if len(text) <= 20 else 2**63
    return number if -(2**63) <= number < 2**63 else None
