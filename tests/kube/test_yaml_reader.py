"""YAML as in Kubernetes manifests: scalars, keys, aliases, and hostile input."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.nesting_limit import LEVELS_MAX
from dralloc.kube.positions import Position, SourceError
from dralloc.kube.trees import RepeatedKeys
from dralloc.kube.yaml_reader import ALIASED_SIZE_MAX, read_yaml_stream
from dralloc.kube.yaml_writer import write_yaml


def read(text: str) -> Any:
    (tree,) = read_yaml_stream(text)
    return tree


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("yes", True), ("On", True), ("y", True), ("off", False), ("N", False), ("TRUE", True), ("tRUE", "tRUE"),
        ("~", None), ("null", None), ("", None), ("nULL", "nULL"),
        ("012", 10), ("0o17", 15), ("0x1F", 31), ("0b11", 3), ("-0b11", -3), ("1_000", 1000), ("+5", 5), ("-0", 0), ("08", 8),
        ("18446744073709551615", 2**64 - 1), ("99999999999999999999", 1e20),
        ("1e3", 1000), ("1.5", 1.5), (".5", 0.5), ("1.", 1), ("-1.5e-3", -0.0015), ("1e22", 1e22),
        ("12:30:45", "12:30:45"), ("2024-01-31", "2024-01-31"), ("1.2.3", "1.2.3"), ("0x", "0x"), ("1Gi", "1Gi"), ("e3", "e3"),
        ('"1"', "1"), ("'yes'", "yes"), ("!!str 5", "5"), ("! 5", "5"), ('!!int "5"', 5), ("!!float 5", 5.0), ("!!bool yes", True),
        ("|\n  two\n  lines\n", "two\nlines\n"), (">-\n  one\n  line\n", "one line"),
    ],
)  # fmt: skip
def test_scalars_resolve_as_in_kubernetes(written: str, meant: object) -> None:
    value = read(f"value: {written}" if not written.startswith("-") or len(written) > 1 else f"value:\n  {written}")[
        "value"
    ]
    assert (value, type(value)) == (meant, type(meant))


def test_keys_become_strings() -> None:
    assert read("1: a\ntrue: b\n1.5: c\n'4': d") == {"1": "a", "true": "b", "1.5": "c", "4": "d"}


def test_aliases_and_merges() -> None:
    tree = read("base: &base {a: 1, b: 2}\none: *base\ntwo:\n  <<: *base\n  b: 3\nthree: {<<: [{c: 1}, {c: 2, d: 3}]}")
    assert tree["one"] == {"a": 1, "b": 2}
    assert tree["two"] == {"a": 1, "b": 3}
    assert tree["three"] == {"c": 1, "d": 3}


def test_repeated_keys_are_recorded() -> None:
    tree = read("a: 1\nb: {c: 1, c: 2}\na: 3\na: 4")
    assert (type(tree), tree["a"], tree.repeated) == (RepeatedKeys, 4, ("a",))
    assert tree["b"].repeated == ("c",)


def test_documents_follow_each_other() -> None:
    assert list(read_yaml_stream("---\na: 1\n---\n# nothing\n---\n- b\n...\n")) == [{"a": 1}, None, ["b"]]
    assert list(read_yaml_stream("")) == []


BILLION_LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("a: [1,\n", 2, 1, "not YAML"),
        ("a: b: c", 1, 5, "not YAML"),
        ("a:\n\t- b", 2, 1, "not YAML"),
        ("a: 1\nb: \x00", 2, 4, "U+0000"),
        ("a: \ud800", 1, 4, "U+D800"),
        ("a: b\x81", 1, 5, "U+0081"),
        ("a: .nan", 1, 4, "not a number"),
        ("a: -.INF", 1, 4, "not a number"),
        ("a: 1e999", 1, 4, "not a number"),
        ("a: *b", 1, 4, "not complete before it"),
        ("&a [*a]", 1, 5, "not complete before it"),
        ("a: !!python/name:os.system x", 1, 4, "is not supported"),
        ("a: !!binary aGVsbG8=", 1, 4, "is not supported"),
        ("a: !mine {}", 1, 4, "is not supported"),
        ("? [a]\n: b", 1, 1, "not a string"),
        ("{<<: 1}", 1, 1, "must refer to a mapping"),
        ("[" * 100_000, 1, LEVELS_MAX + 1, "levels deep"),
        ("- " * 100_000, 1, 2 * LEVELS_MAX + 1, "levels deep"),
        ("{a: " * 100_000, 1, 4 * LEVELS_MAX + 1, "levels deep"),
        (BILLION_LAUGHS, 7, 6, "too much"),
    ],
)  # fmt: skip
def test_invalid_yaml_is_rejected_with_its_position(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(SourceError) as refusal:
        list(read_yaml_stream(text))
    assert said.replace("U+", "") in str(refusal.value).replace("U+", "")
    assert refusal.value.position.line == line
    if "too much" not in said:
        assert refusal.value.position == Position(line, column)


def test_aliases_may_expand_up_to_the_limit() -> None:
    text = "base: &base {text: " + "x" * 1000 + "}\nlist: [" + "*base, " * 1500 + "]"
    assert len(read(text)["list"]) == 1500
    assert ALIASED_SIZE_MAX > 1500 * 1000


@pytest.mark.parametrize("name", ["x" * 1023, "x" * 1025, '"' + "x" * 1025 + '"'], ids=len)
def test_names_are_as_long_as_yaml_allows(name: str) -> None:
    if len(name) < 1024:
        assert read(f"{name}: 1\n") == {name: 1}
    else:
        with pytest.raises(SourceError, match="not YAML"):
            read(f"{name}: 1\n")


@pytest.mark.parametrize("begin", ["", "-", "a:", "a: b", "- a:", "a: |\n"], ids=repr)
def test_many_spaces_take_no_longer_than_other_text(begin: str) -> None:
    """The square of their number would be hours."""
    assert list(read_yaml_stream(begin + " " * 1_000_000)) is not None


def test_trees_share_nothing() -> None:
    first, second = read_yaml_stream("a: []\nb: {c: d}\n---\na: []\nb: {c: d}\n")
    assert first == second
    assert first["a"] is not second["a"]
    assert first["b"] is not second["b"]


# --- Properties ----------------------------------------------------------------------------------------------

texts = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff\ufffe\uffff\u2028\u2029\x85"
    ),
    max_size=10,
)
trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | texts
    | st.sampled_from(["yes", "1e3", "012", "~", "<<", "1_0", "12:30"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)


@given(trees)
def test_json_is_yaml(tree: Any) -> None:
    assert read(json.dumps(tree, ensure_ascii=False)) == tree


@given(trees)
def test_written_yaml_round_trips_in_all_readers(tree: Any) -> None:
    text = write_yaml(tree)
    assert read(text) == tree
    assert yaml.load(text, Loader=yaml.CSafeLoader) == tree


def test_multi_line_strings_use_block_style() -> None:
    assert write_yaml({"expression": "a &&\nb", "count": 1, "text": "1e3", "long": "x " * 100 + "y"}) == (
        "expression: |-\n  a &&\n  b\ncount: 1\ntext: '1e3'\nlong: " + "x " * 100 + "y\n"
    )


@pytest.mark.fuzz
@given(st.text(max_size=60) | st.text(alphabet="ab:-[]{}&*!|>'\"%@`#,? \n\t019.e<~", max_size=60))
def test_any_text_parses_or_raises_a_source_error(text: str) -> None:
    try:
        documents = list(read_yaml_stream(text))
    except SourceError:
        return
    json.dumps(documents, allow_nan=False)
