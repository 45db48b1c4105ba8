"""Node selectors match as node affinity does; anchors find every selector that can match."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.node_selectors import (
    IndexedSelector,
    NodeFacts,
    NodeSelectorError,
    anchors,
    anchors_of_node,
    matches,
)
from dralloc.kube.meta_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

NODE = NodeFacts("node-a", {"zone": "z1", "gpus": "8", "empty": ""})


def requirement(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def term(*labels: NodeSelectorRequirement, fields: tuple[NodeSelectorRequirement, ...] = ()) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=labels, match_fields=fields)


def by_name(operator: str, *names: str) -> NodeSelectorTerm:
    return term(fields=(requirement("metadata.name", operator, *names),))


@dataclass(frozen=True)
class Case:
    id: str
    terms: tuple[NodeSelectorTerm, ...]
    want: bool = False
    labels: dict[str, str] = field(default_factory=dict)


CASES = [
    Case("no terms match nothing", ()),
    Case("an empty term matches nothing", (term(),)),
    Case("a label with a listed value", (term(requirement("zone", "In", "z0", "z1")),), want=True),
    Case("a label with another value", (term(requirement("zone", "In", "z2")),)),
    Case("a label that the node lacks", (term(requirement("rack", "In", "r1")),)),
    Case("not in: another value", (term(requirement("zone", "NotIn", "z2")),), want=True),
    Case("not in: no such label", (term(requirement("rack", "NotIn", "r1")),), want=True),
    Case("not in: that value", (term(requirement("zone", "NotIn", "z1")),)),
    Case("exists", (term(requirement("empty", "Exists")),), want=True),
    Case("does not exist", (term(requirement("rack", "DoesNotExist")),), want=True),
    Case("exists, but must not", (term(requirement("zone", "DoesNotExist")),)),
    Case("greater", (term(requirement("gpus", "Gt", "4")),), want=True),
    Case("not greater", (term(requirement("gpus", "Gt", "8")),)),
    Case("less", (term(requirement("gpus", "Lt", "9")),), want=True),
    Case("no number to compare", (term(requirement("zone", "Lt", "9")),)),
    Case("all requirements of a term", (term(requirement("zone", "Exists"), requirement("rack", "Exists")),)),
    Case("one of the terms", (term(requirement("rack", "Exists")), term(requirement("zone", "Exists"))), want=True),
    Case("by name", (by_name("In", "node-a"),), want=True),
    Case("by another name", (by_name("In", "node-b"),)),
    Case("any but that name", (by_name("NotIn", "node-a"),)),
    Case("a field that is not the name", (term(fields=(requirement("metadata.uid", "In", "x"),)),)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_which_nodes_a_selector_matches(case: Case) -> None:
    selector = NodeSelector(node_selector_terms=case.terms)
    assert matches(selector, NODE) == case.want
    assert IndexedSelector(selector).matches(NODE) == case.want


@pytest.mark.parametrize(
    "invalid",
    [
        term(requirement("zone", "In")),
        term(requirement("zone", "Exists", "z1")),
        term(requirement("gpus", "Gt", "many")),
        term(requirement("gpus", "Gt", "1", "2")),
        term(requirement("zone", "Near", "z1")),
        term(requirement("not a key", "Exists")),
        term(requirement("zone", "In", "not a value")),
        by_name("In", "node-a", "node-b"),
        by_name("Exists"),
    ],
)
def test_an_invalid_selector_fails_for_every_node(invalid: NodeSelectorTerm) -> None:
    selector = NodeSelector(node_selector_terms=(term(requirement("zone", "Exists")), invalid))
    with pytest.raises(NodeSelectorError):
        matches(selector, NODE)
    indexed = IndexedSelector(selector)
    for each in (NODE, NodeFacts("any")):
        with pytest.raises(NodeSelectorError):
            indexed.matches(each)
    assert anchors(selector) & set(anchors_of_node(NodeFacts("any")))


keys = st.sampled_from(("zone", "rack", "gpus"))
values = st.sampled_from(("1", "2", "3"))
requirements = st.one_of(
    st.builds(lambda key, found: requirement(key, "In", *found), keys, st.lists(values, min_size=1, max_size=2)),
    st.builds(
        lambda key, operator, value: requirement(key, operator, value), keys, st.sampled_from(("NotIn", "Gt")), values
    ),
    st.builds(lambda key: requirement(key, "Exists"), keys),
)
names = st.sampled_from(("node-a", "node-b"))
terms = st.one_of(
    st.lists(requirements, max_size=3).map(lambda found: term(*found)),
    st.builds(by_name, st.sampled_from(("In", "NotIn")), names),
)
nodes = st.builds(NodeFacts, names, st.dictionaries(keys, values))


@given(st.lists(terms, max_size=3), nodes)
def test_every_matched_node_has_an_anchor_of_the_selector(found: list[NodeSelectorTerm], node: NodeFacts) -> None:
    selector = NodeSelector(node_selector_terms=tuple(found))
    is_matched = matches(selector, node)
    assert IndexedSelector(selector).matches(node) == is_matched
    if is_matched:
        assert anchors(selector) & set(anchors_of_node(node))
