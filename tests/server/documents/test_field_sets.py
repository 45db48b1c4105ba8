"""Field sets against Python's own sets: each field set is a set of paths, and its algebra is theirs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.server.documents.owned_fields import (
    SELF,
    FieldSet,
    difference,
    intersection,
    paths,
    union,
    with_parents,
    without_below,
)
from tests.server.documents.field_set_members import Path, members


def from_members(found: set[Path]) -> FieldSet:
    fields: FieldSet = {}
    for path in found:
        node = fields
        for element in path:
            node = node.setdefault(element, {})
        node[SELF] = {}
    return _tidy(fields)


def _tidy(fields: FieldSet) -> FieldSet:
    return {element: {} if below == {SELF: {}} else _tidy(below) for element, below in fields.items()}


field_paths = st.lists(st.sampled_from(["f:a", "f:b", 'k:{"n":"x"}']), min_size=1, max_size=3).map(tuple)


field_sets = st.sets(field_paths, max_size=5).map(from_members)


@pytest.mark.slow
@given(field_sets, field_sets)
def test_the_algebra_is_that_of_sets(one: FieldSet, other: FieldSet) -> None:
    assert members(union(one, other)) == members(one) | members(other)
    assert members(intersection(one, other)) == members(one) & members(other)
    assert members(difference(one, other)) == members(one) - members(other)


@pytest.mark.slow
@given(field_sets, field_sets)
def test_results_are_valid_field_sets(one: FieldSet, other: FieldSet) -> None:
    for result in (union(one, other), intersection(one, other), difference(one, other), without_below(one, other)):
        assert result == from_members(members(result))


@pytest.mark.slow
@given(field_sets, field_sets)
def test_without_below_removes_fields_and_everything_below_them(one: FieldSet, other: FieldSet) -> None:
    gone = {path for path in members(one) if any(path[:length] in members(other) for length in range(1, len(path) + 1))}
    assert members(without_below(one, other)) == members(one) - gone


@given(field_sets)
def test_with_parents_adds_parent_objects(fields: FieldSet) -> None:
    above = {path[:length] for path in members(fields) for length in range(1, len(path))}
    objects = {path for path in above if path[-1].startswith("f:")}
    assert members(with_parents(fields)) == members(fields) | objects


def test_paths_are_printed_as_in_kubernetes() -> None:
    fields: FieldSet = {
        "f:spec": {
            "f:replicas": {},
            "f:list": {'k:{"name":"x","port":80}': {".": {}, "f:image": {}}, 'v:"a"': {}, "i:0": {}},
        },
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
    }
    assert list(paths(fields)) == [
        ".metadata.labels",
        ".metadata.labels.app",
        ".spec.replicas",
        ".spec.list[0]",
        '.spec.list[name="x",port=80]',
        '.spec.list[="a"]',
        '.spec.list[name="x",port=80].image',
    ]
