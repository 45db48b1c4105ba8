"""Objects that a client reads have no managed fields, and nothing else is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import without_managed_fields
from dralloc.kube.codec import decode
from dralloc.kube.pod_v1 import Pod

MANAGED = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {'k:{"a]":"}"}': {}}}}]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def body(separators: tuple[str, str] = (",", ":"), **metadata: Any) -> bytes:
    document = {"metadata": {"name": "p", **metadata, "uid": "1"}, "spec": {"nodeName": "n"}}
    return json.dumps(document, separators=separators, ensure_ascii=False).encode()


@given(st.lists(st.dictionaries(st.text(max_size=8), values, max_size=3), max_size=3))
def test_managed_fields_are_left_out_and_the_rest_stays(managed: list[dict[str, Any]]) -> None:
    assert json.loads(without_managed_fields(body(managedFields=managed))) == json.loads(body(managedFields=[]))


def test_typed_objects_have_none() -> None:
    read = resource_for(Pod).decode(body(managedFields=MANAGED))
    assert read == decode(body(), Pod)
    assert resource_for(Pod).decode_change(body(managedFields=MANAGED)) == read


@pytest.mark.parametrize(
    "untouched",
    [
        body(),
        body((", ", ": "), managedFields=MANAGED),
        body(managedFields=MANAGED, annotations={"a": '"managedFields":[]'}),
        body(managedFields=MANAGED)[:-1],
        b'{"spec":{"managedFields":[1]}}',
        b'{"metadata":{},"spec":{"managedFields":[1]}}',
        b'{"metadata":{"managedFields":[1],"x":{"managedFields":[2]}}}',
    ],
    ids=["none", "other spaces", "escaped in a string", "cut off", "no metadata", "not in metadata", "twice"],
)
def test_other_texts_stay_as_they_are_or_keep_their_meaning(untouched: bytes) -> None:
    left = without_managed_fields(untouched)
    if left != untouched:
        expected = json.loads(untouched)
        expected["metadata"]["managedFields"] = []
        assert json.loads(left) == expected
