"""Manifests: documents, lists, and positions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.manifests import Manifest, read_manifest
from dralloc.kube.positions import Position, nearest


def bodies(source: bytes) -> list[object]:
    manifest = read_manifest(source)
    assert manifest.error is None
    return [json.loads(document.body) for document in manifest.documents]


@pytest.mark.parametrize(
    ("source", "want"),
    [
        (b"", []),
        (b"# nothing\n---\n", []),
        (b"a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        (b'{"a": 1}', [{"a": 1}]),
        (b'{"a": 1}\n{"b": 2} [3]', [{"a": 1}, {"b": 2}, [3]]),
        (b"{a: 1}\n---\n{b: 2}", [{"a": 1}, {"b": 2}]),
        (b'\xef\xbb\xbf{"a": 1}', [{"a": 1}]),
        (
            b'{"kind": "List", "items": [{"kind": "A"}, {"kind": "List", "items": [{"kind": "B"}]}]}',
            [{"kind": "A"}, {"kind": "B"}],
        ),
        (b"kind: List\nitems: 3", [{"kind": "List", "items": 3}]),
        (
            b"apiVersion: resource.k8s.io/v1\nkind: DeviceClassList\nitems: [{metadata: {name: a}}, {kind: Mine}]",
            [
                {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "a"}},
                {"apiVersion": "resource.k8s.io/v1", "kind": "Mine"},
            ],
        ),
    ],
)
def test_documents_and_lists(source: bytes, want: list[object]) -> None:
    assert bodies(source) == want


def test_json_bytes_are_kept() -> None:
    (document,) = read_manifest(b' {"parameters":  {"b" : 1.50, "a":1} } ').documents
    assert document.body == b'{"parameters":  {"b" : 1.50, "a":1} }'


@pytest.mark.parametrize("source", [b"a: 1\n---\nb: [", b'{"a": 1} {"b": '])
def test_documents_before_an_error_are_read(source: bytes) -> None:
    manifest = read_manifest(source)
    assert [document.tree for document in manifest.documents] == [{"a": 1}]
    assert manifest.error is not None


@pytest.mark.parametrize(
    ("source", "position"),
    [
        (b"a: b\nc: \xff", Position(2, 4)),
        ("ä: \udcff".encode(errors="surrogateescape"), Position(1, 4)),
        (b'{"a":\n 1', Position(2, 3)),
    ],
)
def test_an_error_has_a_position(source: bytes, position: Position) -> None:
    error = read_manifest(source).error
    assert error is not None
    assert error.position == position


YAML = b"""\
# comment
kind: A
spec:
  list:
  - one: 1
    "two": [x, y]
  - {three: 3}
---
kind: List
items:
- kind: B
  name: b
"""

JSON = b'{"kind": "A", "s": "}]\\"",\n "spec": {"list": [\n  {"one": 1}, {"two":\n   ["x", "y"]}]}}\n{"kind":"B","name":\n"b"}'


def locate(manifest: Manifest, document: int, *steps: str | int) -> Position:
    found = manifest.documents[document]
    return nearest(manifest.locate([found])[found.index], (*found.prefix, *steps))


def test_positions_in_yaml() -> None:
    manifest = read_manifest(YAML)
    assert locate(manifest, 0) == Position(2, 1)
    assert locate(manifest, 0, "spec", "list", 0, "one") == Position(5, 5)
    assert locate(manifest, 0, "spec", "list", 0, "two", 1) == Position(6, 16)
    assert locate(manifest, 0, "spec", "list", 1, "three") == Position(7, 6)
    assert locate(manifest, 0, "spec", "list", 1, "missing", "deep") == Position(7, 5)
    assert locate(manifest, 1, "name") == Position(12, 3)


def test_positions_in_json() -> None:
    manifest = read_manifest(JSON)
    assert locate(manifest, 0) == Position(1, 1)
    assert locate(manifest, 0, "spec", "list", 0, "one") == Position(3, 4)
    assert locate(manifest, 0, "spec", "list", 1, "two", 1) == Position(4, 10)
    assert locate(manifest, 1, "name") == Position(5, 13)
    assert locate(manifest, 1, "nothing") == Position(5, 1)


trees = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\{}[]:,\n ', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='ab"\\{', max_size=2), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.lists(trees.map(lambda tree: {"x": tree}), min_size=1, max_size=3), st.sampled_from([None, 1]))
def test_every_part_of_json_has_its_position(values: list[dict[str, object]], indent: int | None) -> None:
    text = "\n".join(json.dumps(value, indent=indent) for value in values)
    lines = text.split("\n")
    manifest = read_manifest(text.encode())
    located = manifest.locate(manifest.documents)
    for document in manifest.documents:
        for steps, position in located[document.index].items():
            there = lines[position.line - 1][position.column - 1 :]
            value: object = document.tree
            for step in steps:
                value = value[step]  # type: ignore[index]
            name = steps[-1] if steps and isinstance(steps[-1], str) else None
            assert there.startswith(
                json.dumps(name) if name is not None else json.dumps(value, indent=indent).split("\n")[0]
            )


@pytest.mark.fuzz
@given(st.binary(max_size=80) | st.text(alphabet='{}[]",:ab1\n -&*\\u', max_size=80).map(str.encode))
def test_any_bytes_are_a_manifest_or_a_source_error(source: bytes) -> None:
    manifest = read_manifest(source)
    for index, positions in manifest.locate(manifest.documents).items():
        assert index < len(manifest.documents) + source.count(b"---")
        assert all(position.line >= 1 and position.column >= 1 for position in positions.values())
