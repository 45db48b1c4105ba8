"""JSON patch and merge patch: cases, properties of the RFCs, and an independent implementation."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.codec import encode
from dralloc.kube.trees import ExactNumber
from dralloc.primitives.errors import ApiError, BadRequest, Invalid, RequestEntityTooLarge
from dralloc.server.documents.json_patch import OPERATIONS_MAX, apply_json_patch, apply_merge_patch


@dataclass(frozen=True)
class Case:
    id: str
    patch: Any
    want: Any
    document: Any = None


CLAIM = {"metadata": {"name": "c", "labels": {"a": "1", "b~/": "2"}}, "spec": {"requests": ["x", "y"]}}

MERGE_CASES = [
    Case("a member is set", {"metadata": {"labels": {"c": "3"}}}, {"a": "1", "b~/": "2", "c": "3"}),
    Case("null removes", {"metadata": {"labels": {"a": None}}}, {"b~/": "2"}),
    Case("null of what is not there changes nothing", {"metadata": {"labels": {"z": None}}}, {"a": "1", "b~/": "2"}),
    Case(
        "an object replaces what is not one",
        {"metadata": {"labels": {"a": {"x": None, "y": 1}}}},
        {"a": {"y": 1}, "b~/": "2"},
    ),
    Case("a list is replaced whole, with its nulls", {"metadata": {"labels": [None]}}, [None]),
]


@pytest.mark.parametrize("case", MERGE_CASES, ids=lambda case: case.id)
def test_merge_patch(case: Case) -> None:
    assert apply_merge_patch(CLAIM, case.patch)["metadata"]["labels"] == case.want


JSON_CASES = [
    Case("add a member", [{"op": "add", "path": "/a", "value": 1}], {"l": [1, 2], "o": {"x": 1}, "a": 1}),
    Case("add over a member", [{"op": "add", "path": "/l", "value": []}], {"l": [], "o": {"x": 1}}),
    Case("insert into a list", [{"op": "add", "path": "/l/1", "value": 9}], {"l": [1, 9, 2], "o": {"x": 1}}),
    Case("insert at a list's end", [{"op": "add", "path": "/l/2", "value": 9}], {"l": [1, 2, 9], "o": {"x": 1}}),
    Case("append to a list", [{"op": "add", "path": "/l/-", "value": 9}], {"l": [1, 2, 9], "o": {"x": 1}}),
    Case("remove from a list", [{"op": "remove", "path": "/l/0"}], {"l": [2], "o": {"x": 1}}),
    Case("remove a member", [{"op": "remove", "path": "/o/x"}], {"l": [1, 2], "o": {}}),
    Case("replace in a list", [{"op": "replace", "path": "/l/1", "value": None}], {"l": [1, None], "o": {"x": 1}}),
    Case("replace the document", [{"op": "replace", "path": "", "value": {}}], {}),
    Case("move", [{"op": "move", "from": "/o/x", "path": "/l/0"}], {"l": [1, 1, 2], "o": {}}),
    Case("move to itself", [{"op": "move", "from": "/o", "path": "/o"}], {"l": [1, 2], "o": {"x": 1}}),
    Case("copy", [{"op": "copy", "from": "/o", "path": "/p"}], {"l": [1, 2], "o": {"x": 1}, "p": {"x": 1}}),
    Case(
        "a copy is a value of its own",
        [{"op": "copy", "from": "/o", "path": "/p"}, {"op": "add", "path": "/p/y", "value": 2}],
        {"l": [1, 2], "o": {"x": 1}, "p": {"x": 1, "y": 2}},
    ),
    Case(
        "what was added can be changed further, and the patch stays as it was",
        [{"op": "add", "path": "/p", "value": {"q": [1]}}, {"op": "remove", "path": "/p/q/0"}],
        {"l": [1, 2], "o": {"x": 1}, "p": {"q": []}},
    ),
    Case("a test that holds", [{"op": "test", "path": "/o", "value": {"x": 1}}], {"l": [1, 2], "o": {"x": 1}}),
    Case(
        "what is not there tests as null", [{"op": "test", "path": "/o/z", "value": None}], {"l": [1, 2], "o": {"x": 1}}
    ),
    Case(
        "pointers escape ~ and /",
        [{"op": "add", "path": "/o/a~1b~0c", "value": 1}, {"op": "remove", "path": "/o/x"}],
        {"l": [1, 2], "o": {"a/b~c": 1}},
    ),
]


@pytest.mark.parametrize("case", JSON_CASES, ids=lambda case: case.id)
def test_json_patch(case: Case) -> None:
    document = {"l": [1, 2], "o": {"x": 1}}
    before, patch = copy.deepcopy(document), copy.deepcopy(case.patch)
    assert apply_json_patch(document, case.patch) == case.want
    assert (document, case.patch) == (before, patch)


@dataclass(frozen=True)
class Refusal:
    id: str
    operations: Any
    error: type[ApiError] = Invalid


REFUSALS = [
    Refusal("a test that fails", [{"op": "test", "path": "/o/x", "value": 2}]),
    Refusal("true is not 1", [{"op": "test", "path": "/o/x", "value": True}]),
    Refusal("a test below what is not there", [{"op": "test", "path": "/z/x", "value": None}]),
    Refusal("remove what is not there", [{"op": "remove", "path": "/z"}]),
    Refusal("replace what is not there", [{"op": "replace", "path": "/z", "value": 1}]),
    Refusal("add below what is not there", [{"op": "add", "path": "/z/y", "value": 1}]),
    Refusal("add below a number", [{"op": "add", "path": "/o/x/y", "value": 1}]),
    Refusal("a position past the end", [{"op": "add", "path": "/l/3", "value": 1}]),
    Refusal("a position that does not exist", [{"op": "remove", "path": "/l/2"}]),
    Refusal("a position with a leading zero", [{"op": "remove", "path": "/l/01"}]),
    Refusal("a negative position", [{"op": "remove", "path": "/l/-1"}]),
    Refusal("a position of many digits", [{"op": "remove", "path": f"/l/{'9' * 5000}"}]),
    Refusal("no value", [{"op": "add", "path": "/z"}]),
    Refusal("no path", [{"op": "remove"}]),
    Refusal("a path that is no pointer", [{"op": "remove", "path": "o"}]),
    Refusal("no from", [{"op": "copy", "path": "/z"}]),
    Refusal("an unknown operation", [{"op": "frob", "path": "/o"}]),
    Refusal("move into itself", [{"op": "move", "from": "/o", "path": "/o/x/y"}]),
    Refusal("remove the document", [{"op": "remove", "path": ""}]),
    Refusal("a document that is no object", [{"op": "replace", "path": "", "value": 1}]),
    Refusal("copies that grow without end", [{"op": "copy", "from": "", "path": f"/{i}"} for i in range(40)]),
    Refusal("not a list", {"op": "remove", "path": "/o"}, BadRequest),
    Refusal("operations that are no objects", ["x"], BadRequest),
    Refusal("too many operations", [{}] * (OPERATIONS_MAX + 1), RequestEntityTooLarge),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_json_patch_refuses(case: Refusal) -> None:
    document = {"l": [1, 2], "o": {"x": 1}}
    with pytest.raises(case.error):
        apply_json_patch(document, case.operations)
    assert document == {"l": [1, 2], "o": {"x": 1}}


def test_deep_nesting_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(BadRequest, match="nested too deeply"):
        apply_merge_patch({}, deep)


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"])
names = st.sampled_from(["a", "b", "c~/"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(names, values, max_size=3)


def merge_by_the_book(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2, as a model on leaves."""
    if not isinstance(patch, dict):
        return patch
    base = target if isinstance(target, dict) else {}
    kept = {name: value for name, value in base.items() if name not in patch}
    set_ = {name: merge_by_the_book(base.get(name), value) for name, value in patch.items() if value is not None}
    return kept | set_


@pytest.mark.slow
@given(objects, objects)
def test_merge_patch_agrees_with_the_rfc(document: Any, patch: Any) -> None:
    before = copy.deepcopy(document)
    assert apply_merge_patch(document, patch) == merge_by_the_book(document, patch)
    assert document == before


@pytest.mark.slow
@given(objects, objects)
def test_merge_patch_is_idempotent(document: Any, patch: Any) -> None:
    once = apply_merge_patch(document, patch)
    assert apply_merge_patch(once, patch) == once


paths = st.lists(names | st.sampled_from(["0", "1", "-"]), min_size=1, max_size=3).map(
    lambda steps: "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
)
operation = st.one_of(
    st.fixed_dictionaries({"op": st.just("add"), "path": paths, "value": values}),
    st.fixed_dictionaries({"op": st.just("replace"), "path": paths, "value": values}),
    st.fixed_dictionaries({"op": st.just("remove"), "path": paths}),
    st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "from": paths, "path": paths}),
)


@pytest.mark.slow
@given(objects, st.lists(operation, max_size=3))
def test_json_patch_agrees_with_an_independent_implementation(document: Any, operations: list[Any]) -> None:
    jsonpatch = pytest.importorskip("jsonpatch")
    try:
        want = jsonpatch.apply_patch(copy.deepcopy(document), operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):
        return
    assert apply_json_patch(document, operations) == want


def test_a_copied_number_keeps_its_text() -> None:
    live = {"spec": {"numbers": [ExactNumber("1.50")]}}
    patched = apply_json_patch(live, [{"op": "copy", "from": "/spec", "path": "/more"}])
    assert encode(patched["more"]) == b'{"numbers":[1.50]}'
