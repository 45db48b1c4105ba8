"""Strategic merge patch: keyed lists, directives, and properties."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.primitives.errors import ApiError, BadRequest, Invalid
from dralloc.server.documents.json_patch import apply_merge_patch
from dralloc.server.documents.merge_rules import merge_rule
from dralloc.server.documents.strategic_merge import apply_strategic_merge_patch

POD = merge_rule("", "Pod")
NODE = merge_rule("", "Node")
CLAIM = merge_rule("resource.k8s.io", "ResourceClaim")


def containers(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


@dataclass(frozen=True)
class Case:
    id: str
    document: Any
    patch: Any
    want: Any
    rule: Any = POD


CASES = [
    Case("members merge", {"spec": {"a": 1}}, {"spec": {"b": 2}}, {"spec": {"a": 1, "b": 2}}),
    Case("null removes", {"spec": {"a": 1, "b": 2}}, {"spec": {"a": None, "z": None}}, {"spec": {"b": 2}}),
    Case("nulls in what is new vanish", {}, {"spec": {"a": {"b": None, "c": 1}}}, {"spec": {"a": {"c": 1}}}),
    Case("an element merges by its key", {"spec": {"containers": [{"name": "a", "image": "1", "tty": True}]}}, {"spec": {"containers": [{"name": "a", "image": "2"}]}}, {"spec": {"containers": [{"name": "a", "image": "2", "tty": True}]}}),
    Case("a new element comes first, as in Kubernetes", {"spec": {"containers": containers("a", "b")}}, {"spec": {"containers": containers("c")}}, {"spec": {"containers": containers("c", "a", "b")}}),
    Case("an element keeps its place", {"spec": {"containers": containers("a", "b", "c")}}, {"spec": {"containers": [{"name": "b", "tty": True}]}}, {"spec": {"containers": [{"name": "a"}, {"name": "b", "tty": True}, {"name": "c"}]}}),
    Case("elements that the patch names follow its order", {"spec": {"containers": containers("a", "b", "c")}}, {"spec": {"containers": containers("c", "a")}}, {"spec": {"containers": containers("b", "c", "a")}}),
    Case("an element is deleted", {"spec": {"containers": containers("a", "b")}}, {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, {"spec": {"containers": containers("b")}}),
    Case("deleting what is not there changes nothing", {"spec": {"containers": containers("a")}}, {"spec": {"containers": [{"name": "z", "$patch": "delete"}]}}, {"spec": {"containers": containers("a")}}),
    Case("a list is replaced", {"spec": {"containers": containers("a", "b")}}, {"spec": {"containers": [{"$patch": "replace"}, {"name": "b", "x": 1}]}}, {"spec": {"containers": [{"name": "b", "x": 1}]}}),
    Case("an object is replaced", {"spec": {"a": 1}}, {"spec": {"$patch": "replace", "b": 2}}, {"spec": {"b": 2}}),
    Case("an object is emptied", {"spec": {"a": 1}}, {"spec": {"$patch": "delete"}}, {"spec": {}}),
    Case("to merge is the default", {"spec": {"a": 1}}, {"spec": {"$patch": "merge", "b": 2}}, {"spec": {"a": 1, "b": 2}}),
    Case("a list without keys is replaced", {"spec": {"tolerations": [{"key": "a"}]}}, {"spec": {"tolerations": [{"key": "b"}]}}, {"spec": {"tolerations": [{"key": "b"}]}}),
    Case("a list of unmodelled things is replaced", {"x": [1, 2]}, {"x": [3]}, {"x": [3]}),
    Case("keys may be numbers", {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80}]}]}}, {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}]}}, {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}]}}),
    Case("other members of a union are dropped", {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}, {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}, {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
    Case("scalars are added once", {"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["c", "a"]}}, {"metadata": {"finalizers": ["c", "a", "b"]}}),
    Case("scalars are deleted", {"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, {"metadata": {"finalizers": ["b"]}}),
    Case("scalars are deleted and added, in an order", {"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]}}, {"metadata": {"finalizers": ["c", "b"]}}),
    Case("elements are put in order", {"spec": {"containers": containers("a", "b", "c")}}, {"spec": {"$setElementOrder/containers": containers("c", "a")}}, {"spec": {"containers": containers("b", "c", "a")}}),
    Case("a new element is put in its place", {"spec": {"containers": containers("a", "b")}}, {"spec": {"$setElementOrder/containers": containers("a", "x", "b"), "containers": containers("x")}}, {"spec": {"containers": containers("a", "x", "b")}}),
    Case("what the server alone has stays near its neighbours", {"spec": {"containers": containers("a", "s", "b")}}, {"spec": {"$setElementOrder/containers": containers("a", "b", "c"), "containers": containers("c")}}, {"spec": {"containers": containers("a", "s", "b", "c")}}),
    Case("an order of a list that is not there", {"spec": {}}, {"spec": {"$setElementOrder/containers": containers("a")}}, {"spec": {}}),
    Case("a directive where an object is new leaves no trace", {}, {"spec": {"containers": [{"name": "a", "$patch": "delete"}, {"name": "b"}]}}, {"spec": {"containers": containers("b")}}),
    Case("addresses of a node merge by type", {"status": {"addresses": [{"type": "InternalIP", "address": "1"}]}}, {"status": {"addresses": [{"type": "Hostname", "address": "n"}]}}, {"status": {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "1"}]}}, NODE),
    Case("a consumer of a claim is removed by its uid", {"status": {"reservedFor": [{"uid": "u1", "name": "p1"}, {"uid": "u2", "name": "p2"}]}}, {"status": {"reservedFor": [{"$patch": "delete", "uid": "u1"}]}}, {"status": {"reservedFor": [{"uid": "u2", "name": "p2"}]}}, CLAIM),
    Case("a consumer of a claim is added", {"status": {"reservedFor": [{"uid": "u1", "name": "p1"}]}}, {"status": {"reservedFor": [{"uid": "u2", "name": "p2"}]}}, {"status": {"reservedFor": [{"uid": "u2", "name": "p2"}, {"uid": "u1", "name": "p1"}]}}, CLAIM),
    Case("requests of a claim are one piece", {"spec": {"devices": {"requests": [{"name": "a"}]}}}, {"spec": {"devices": {"requests": [{"name": "b"}]}}}, {"spec": {"devices": {"requests": [{"name": "b"}]}}}, CLAIM),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_strategic_merge_patch(case: Case) -> None:
    document, patch = copy.deepcopy(case.document), copy.deepcopy(case.patch)
    assert apply_strategic_merge_patch(case.document, case.patch, case.rule) == case.want
    assert (case.document, case.patch) == (document, patch)


@dataclass(frozen=True)
class Refusal:
    id: str
    patch: Any
    error: type[ApiError] = BadRequest


REFUSALS = [
    Refusal("not an object", []),
    Refusal("an unknown directive", {"spec": {"$patch": "frob"}}),
    Refusal("an unknown directive in a list", {"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
    Refusal("an element without its key", {"spec": {"containers": [{"image": "x"}]}}, Invalid),
    Refusal("an element that is no object", {"spec": {"containers": ["x"]}}, Invalid),
    Refusal("a key that is an object", {"spec": {"containers": [{"name": {}}]}}, Invalid),
    Refusal("an object among scalars", {"metadata": {"finalizers": [{}]}}, Invalid),
    Refusal("a member that is not retained", {"spec": {"$retainKeys": ["a"], "b": 1}}),
    Refusal("retained keys that are no list", {"spec": {"$retainKeys": "a"}}),
    Refusal("an order that is no list", {"spec": {"$setElementOrder/containers": 1}}),
    Refusal("an order without a new element", {"spec": {"$setElementOrder/containers": containers("a"), "containers": containers("b")}}),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_strategic_merge_patch_refuses(case: Refusal) -> None:
    document = {"spec": {"containers": containers("a")}, "metadata": {"finalizers": ["f"]}}
    with pytest.raises(case.error):
        apply_strategic_merge_patch(document, case.patch, POD)


values = st.recursive(
    st.none() | st.integers(0, 3) | st.just("a"),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(st.integers(0, 2), max_size=2),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@pytest.mark.slow
@given(objects, objects)
def test_without_rules_it_equals_a_merge_patch(document: Any, patch: Any) -> None:
    assert apply_strategic_merge_patch(document, patch, POD) == apply_merge_patch(document, patch)


keyed_lists = st.lists(st.sampled_from("abcd"), unique=True, max_size=4).map(lambda names: containers(*names))


@pytest.mark.slow
@given(keyed_lists, keyed_lists)
def test_a_merged_list_keeps_the_elements_and_order_of_both_lists(server: Any, patched: Any) -> None:
    merged = apply_strategic_merge_patch({"spec": {"containers": server}}, {"spec": {"containers": patched}}, POD)[
        "spec"
    ]["containers"]
    assert sorted(element["name"] for element in merged) == sorted({element["name"] for element in server + patched})
    assert [element for element in merged if element in patched] == patched
    untouched = [element for element in server if element not in patched]
    assert [element for element in merged if element in untouched] == untouched


@pytest.mark.slow
@given(keyed_lists, keyed_lists)
def test_strategic_merge_patch_is_idempotent(server: Any, patched: Any) -> None:
    patch = {"spec": {"containers": patched}}
    once = apply_strategic_merge_patch({"spec": {"containers": server}}, patch, POD)
    assert apply_strategic_merge_patch(once, patch, POD) == once
