"""Fields of a document, differences between documents, and merges by a kind's merge rules."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.codec import decode, encode
from dralloc.kube.conversion import from_hub
from dralloc.kube.registry import find_kind
from dralloc.primitives.errors import BadRequest
from dralloc.server.documents.merge_rules import MergeRule, merge_rule
from dralloc.server.documents.owned_fields import (
    FieldSet,
    compare,
    fields_of,
    merge,
    remove,
)
from tests.server.documents.field_set_members import members

VECTORS = FilePath(__file__).parents[2] / "vectors"


POD = merge_rule("", "Pod")


CLAIM = merge_rule("resource.k8s.io", "ResourceClaim")


@dataclass(frozen=True)
class Fields:
    id: str
    document: Any
    want: FieldSet
    rule: MergeRule = POD


FIELDS = [
    Fields("leaves", {"spec": {"a": 1, "b": "x"}}, {"f:spec": {"f:a": {}, "f:b": {}}}),
    Fields("an empty object is a leaf", {"spec": {}}, {"f:spec": {}}),
    Fields("null is nothing", {"spec": {"a": None}}, {}),
    Fields("a plain list is one piece", {"spec": {"tolerations": [{"key": "a"}]}}, {"f:spec": {"f:tolerations": {}}}),
    Fields("a map can be one piece", {"spec": {"nodeSelector": {"a": "b"}}}, {"f:spec": {"f:nodeSelector": {}}}),
    Fields("a keyed element", {"spec": {"containers": [{"name": "a", "image": "i"}]}}, {"f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:image": {}}}}}),
    Fields("an empty keyed list is nothing", {"spec": {"containers": []}}, {}),
    Fields("a key with a default", {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80}]}]}}, {"f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}}}}}),
    Fields("a set", {"metadata": {"finalizers": ["x/y"]}}, {"f:metadata": {"f:finalizers": {'v:"x/y"': {}}}}),
    Fields("elements that are one piece", {"metadata": {"ownerReferences": [{"uid": "u", "name": "n"}]}}, {"f:metadata": {"f:ownerReferences": {'k:{"uid":"u"}': {}}}}),
    Fields("a key may be absent", {"status": {"devices": [{"driver": "d", "pool": "p", "device": "x", "data": {"a": {}}}]}}, {"f:status": {"f:devices": {'k:{"device":"x","driver":"d","pool":"p"}': {".": {}, "f:data": {}, "f:device": {}, "f:driver": {}, "f:pool": {}}}}}, CLAIM),
]  # fmt: skip


@pytest.mark.parametrize("case", FIELDS, ids=lambda case: case.id)
def test_fields_of_an_applied_document(case: Fields) -> None:
    assert fields_of(case.document, case.rule) == case.want


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"spec": {"containers": [{"image": "i"}]}}, "spec.containers: an element has none of its keys: name"),
        ({"spec": {"containers": ["a"]}}, "spec.containers: an element is not an object with the keys name"),
        ({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, "spec.containers: two elements have the same name"),
        ({"spec": {"containers": [{"name": {}}]}}, "spec.containers: an element has a key name that is not text or"),
        ({"metadata": {"finalizers": [{}]}}, "metadata.finalizers: the list is a set, which holds text and numbers"),
        ({"metadata": {"finalizers": ["a", "a"]}}, "metadata.finalizers: two elements have the same value"),
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "b", "env": [{"name": "X"}, {"name": "X"}]}]}},
            "spec.containers[1].env: two elements have the same name",
        ),
    ],
)
def test_lists_without_distinct_names_are_refused_with_their_path(document: Any, said: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{re.escape(said)}"):
        fields_of(document, POD)


def test_a_device_that_a_claim_has_twice_is_refused_with_its_path() -> None:
    device = {"driver": "d", "pool": "p", "device": "x"}
    with pytest.raises(BadRequest, match=r"^status\.devices: two elements have the same driver, device, pool, shareID"):
        fields_of({"status": {"devices": [device, device]}}, CLAIM)


@dataclass(frozen=True)
class Difference:
    id: str
    old: Any
    new: Any
    added: FieldSet | None = None
    modified: FieldSet | None = None
    removed: FieldSet | None = None


DIFFERENCES = [
    Difference("a new map comes with itself", {"metadata": {}}, {"metadata": {"labels": {"a": "1"}}}, added={"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}),
    Difference("a new key comes alone", {"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"a": "1", "b": "2"}}}, added={"f:metadata": {"f:labels": {"f:b": {}}}}),
    Difference("another value", {"spec": {"a": 1}}, {"spec": {"a": 2}}, modified={"f:spec": {"f:a": {}}}),
    Difference("a map goes with itself", {"spec": {"m": {"a": "1"}}}, {"spec": {}}, removed={"f:spec": {"f:m": {".": {}, "f:a": {}}}}),
    Difference("null is an empty object", {"spec": None}, {"spec": {"a": 1}}, added={"f:spec": {"f:a": {}}}),
    Difference("a list of one piece is modified", {"spec": {"l": None}}, {"spec": {"l": [1]}}, modified={"f:spec": {"f:l": {}}}),
    Difference("a new element comes with its members", {"spec": {"containers": []}}, {"spec": {"containers": [{"name": "a"}]}}, added={"f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}}}}}),
    Difference("an element's member", {"spec": {"containers": [{"name": "a", "image": "1"}]}}, {"spec": {"containers": [{"name": "a", "image": "2"}]}}, modified={"f:spec": {"f:containers": {'k:{"name":"a"}': {"f:image": {}}}}}),
    Difference("order is nobody's", {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}, {"spec": {"containers": [{"name": "b"}, {"name": "a"}]}}),
    Difference("an element goes", {"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["b"]}}, removed={"f:metadata": {"f:finalizers": {'v:"a"': {}}}}),
    Difference("elements that share a key are one piece", {"spec": {"containers": [{"name": "a"}]}}, {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, modified={"f:spec": {"f:containers": {}}}),
    Difference("a new list that cannot be keyed is one piece", {"spec": {}}, {"spec": {"containers": [{"image": "x"}]}}, added={"f:spec": {"f:containers": {}}}),
    Difference("an object that becomes a number", {"spec": {"a": {"b": 1}}}, {"spec": {"a": 1}}, modified={"f:spec": {"f:a": {}}}),
]  # fmt: skip


@pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: case.id)
def test_differences(case: Difference) -> None:
    changes = compare(case.old, case.new, POD)
    assert changes.added == (case.added or {})
    assert changes.modified == (case.modified or {})
    assert changes.removed == (case.removed or {})


def containers(*names: str) -> Any:
    return {"spec": {"containers": [{"name": name} for name in names]}}


@pytest.mark.parametrize(
    ("live", "applied", "want"),
    [
        pytest.param("abc", "b", "abc", id="what is there keeps its place"),
        pytest.param("ab", "xb", "axb", id="what is new comes after what was before"),
        pytest.param("abc", "cxa", "bcxa", id="the applied order wins"),
        pytest.param("", "ba", "ba", id="all new"),
        pytest.param("ab", "", "ab", id="nothing applied"),
        pytest.param("ab", "xy", "abxy", id="nothing shared"),
    ],
)
def test_merged_lists_keep_their_order(live: str, applied: str, want: str) -> None:
    assert merge(containers(*live), containers(*applied), POD) == containers(*want)


keyed = st.dictionaries(
    st.sampled_from("abc"), st.dictionaries(st.sampled_from(["image", "tty"]), st.integers(0, 1)), max_size=3
)


documents = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"), max_size=2),
                "finalizers": st.lists(st.sampled_from("fgh"), unique=True),
            },
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": keyed.map(lambda named: [{"name": name, **rest} for name, rest in named.items()]),
                "nodeSelector": st.dictionaries(st.sampled_from("ab"), st.just("x")),
                "priority": st.integers(0, 1),
            },
        ),
    },
)


def unordered(document: Any) -> Any:
    """The document with its keyed lists and sets as mappings and sets."""
    if isinstance(document, dict):
        return {name: unordered(value) for name, value in document.items()}
    if isinstance(document, list):
        return {
            str(element.get("name") if isinstance(element, dict) else element): unordered(element)
            for element in document
        }
    return document


@given(documents, documents)
def test_a_merge_contains_all_applied_fields(live: Any, applied: Any) -> None:
    merged = merge(live, applied, POD)
    changes = compare(merged, applied, POD)
    assert not changes.added
    assert not changes.modified
    assert unordered(merge(merged, applied, POD)) == unordered(merged)


@given(documents, documents)
def test_no_difference_means_equal(one: Any, other: Any) -> None:
    changes = compare(one, other, POD)
    assert (changes.added or changes.modified or changes.removed) != {} or unordered(one) == unordered(other)


@given(documents, documents)
def test_added_and_removed_fields_are_symmetric(one: Any, other: Any) -> None:
    there, back = compare(one, other, POD), compare(other, one, POD)
    assert (there.added, there.modified, there.removed) == (back.removed, back.modified, back.added)


@given(documents, documents)
def test_remove_removes_exactly_the_fields(one: Any, other: Any) -> None:
    fields = fields_of(other, POD)
    rest = members(fields_of(remove(one, fields, POD), POD))
    before, gone = members(fields_of(one, POD)), members(fields)
    assert not rest & gone
    below = {path for path in before if any(path[:length] in gone for length in range(1, len(path) + 1))}
    assert before - below <= rest


def recorded_objects(count_max: int) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / "api.jsonl.gz", "rt") as lines:
        objects = (json.loads(line).get("object") for line in lines)
        found = [obj for obj in objects if obj and obj.get("apiVersion") == "resource.k8s.io/v1"]
    return found[:count_max]


@pytest.mark.slow
def test_field_sets_of_all_versions_agree() -> None:
    """As `merge_rules` assumes, versions differ only inside atomic lists."""
    objects = recorded_objects(count_max=400)
    assert {obj["kind"] for obj in objects} >= {
        "ResourceClaim",
        "ResourceSlice",
        "ResourceClaimTemplate",
        "DeviceClass",
    }
    for document in objects:
        kind = find_kind(document["apiVersion"], document["kind"])
        assert kind is not None
        rule = merge_rule(kind.group, kind.kind)
        for served in kind.versions[1:]:
            hub = decode(json.dumps(document).encode(), kind.hub)
            other = json.loads(encode(from_hub(hub, served.version)))
            assert fields_of(other, rule) == fields_of(json.loads(encode(hub)), rule), document
