"""Documents that are read line by line are what a YAML parser reads, errors included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.api.positions import SourceError
from dralloc.api.trees import RepeatedKeys
from dralloc.api.yaml_lines import NOT_PLAIN, read_plain_document, split_documents
from dralloc.api.yaml_reader import parse_yaml_stream, read_yaml_stream

PLAIN = """\
apiVersion: v1
kind: Pod
metadata:
  name: "p"
  labels: {app: trainer, "a b": 'c, d'}
  annotations:
    text: |
      first # no comment

        indented
spec:
  # a comment
  containers:
  - name: main
    args: [run, "--fast", 3]
    env:
    - name: A
      value: device.attributes["x"].y == "z"
    resources:
      claims:
        - name: gpu
        -   name: nic
            request: fast
  nodeName:
  tolerations: []
"""

names = st.sampled_from(["a", "b", "c/d.e-f", '"q"', "'s t'", "yes", "1", "~", "<<", '"<<"', "x y", "&a"])
values = st.sampled_from(
    ["", " 1", " v", " yes", " ~", " 1e3", " 1e999", " -1", " -", " - x", " a: b", " a #c", " a:", " 'x y'", ' "x"', ' "x\\n"',
     " 'it''s'", " []", " {}", " [a, b]", " [a,b]", " {a: b}", " {a: b, a: c}", " {y: 1}", " |", " |-", " |+", " >", " &x y", " *x",
     " !!str 5", " <<", " 012", " 12:30", " x, y", " a]b", " --- x", " a\tb", " é", " v  ", "  v", " 'open", " ?", " @a", " a://b"]
)  # fmt: skip
members = st.builds(lambda name, value: f"{name}:{value}", names, values)
items = st.builds(lambda gap, rest: f"-{gap}{rest}", st.sampled_from([" ", " ", "  "]), members | values.map(str.strip))
others = st.sampled_from(
    ["", "  ", "# c", "---", "---", "--- x", "...", "%YAML 1.1", "text", "-", "- - a", "? a", "close'"]
)
indented = st.builds(lambda depth, line: " " * depth + line, st.sampled_from([0, 0, 2, 2, 4, 1]), members | items)
texts = st.lists(indented | indented | indented | others, max_size=9).map("\n".join)


def outcome(read: Callable[[str], Iterator[Any]], text: str) -> list[Any]:
    """The trees with the types of their parts, and the error that ended them."""
    seen: list[Any] = []
    try:
        seen.extend(typed(tree) for tree in read(text))
    except SourceError as error:
        seen.append((str(error), error.position))
    return seen


def typed(tree: Any) -> Any:
    if isinstance(tree, dict):
        repeated = tree.repeated if isinstance(tree, RepeatedKeys) else ()
        return "mapping", repeated, [(name, typed(value)) for name, value in tree.items()]
    if isinstance(tree, list):
        return [typed(item) for item in tree]
    return type(tree), tree


@given(texts, st.sampled_from(["", "\n"]))
def test_lines_and_parser_agree(text: str, end: str) -> None:
    assert outcome(read_yaml_stream, text + end) == outcome(parse_yaml_stream, text + end)


def test_a_plain_document_needs_no_parser() -> None:
    documents = split_documents(PLAIN)
    assert documents is not None
    tree = read_plain_document(next(documents))
    assert tree is not NOT_PLAIN
    assert typed(tree) == typed(next(parse_yaml_stream(PLAIN)))


def test_a_document_that_is_not_plain_leaves_the_others_plain() -> None:
    text = "a: 1\n---\nb: &x 2\nc: *x\n---\n---\nd: >\n  folded\n  text\n"
    assert list(read_yaml_stream(text)) == [{"a": 1}, {"b": 2, "c": 2}, None, {"d": "folded text\n"}]


def test_trees_share_nothing() -> None:
    first, second = read_yaml_stream("a: []\nb: {c: d}\n---\na: []\nb: {c: d}\n")
    assert first == second
    assert first["a"] is not second["a"]
    assert first["b"] is not second["b"]


@pytest.mark.parametrize("name", ["x" * 499, "x" * 501, "x" * 1023, "x" * 1025, '"' + "x" * 1025 + '"'])
def test_names_are_as_long_as_yaml_allows(name: str) -> None:
    assert outcome(read_yaml_stream, f"{name}: 1\n") == outcome(parse_yaml_stream, f"{name}: 1\n")


@pytest.mark.parametrize("begin", ["", "-", "a:", "a: b", "- a:", "a: |\n", "a: [", '"'], ids=repr)
def test_many_spaces_take_no_longer_than_other_text(begin: str) -> None:
    """The square of their number would be hours."""
    text = begin + " " * 1_000_000
    assert outcome(read_yaml_stream, text) == outcome(parse_yaml_stream, text)
