"""Label and field selectors: what they match, and which are invalid."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.primitives.errors import BadRequest
from dralloc.server.read.selectors import parse_field_selector, parse_label_selector

LABELLED = {
    "none": {},
    "a": {"app": "a"},
    "b": {"app": "b", "tier": "1"},
    "c": {"app": "", "tier": "x", "example.com/n": "10"},
}


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("", "none a b c"),
        ("   ", "none a b c"),
        ("app", "a b c"),
        ("!app", "none"),
        ("! app", "none"),
        ("app=a", "a"),
        ("app == a", "a"),
        ("app=", "c"),
        ("app!=a", "none b c"),
        ("app in (a,b)", "a b"),
        ("app in ( a , b )", "a b"),
        ("app in (a,)", "a c"),
        ("app in ()", "c"),
        ("app in (,)", "c"),
        ("app notin (a,b)", "none c"),
        ("app in (a, b), tier", "b"),
        ("app,tier!=1", "a c"),
        ("tier>0", "b"),
        ("tier<1", ""),
        ("example.com/n > 9", "c"),
        ("example.com/n<11,app", "c"),
        ("in in (in)", ""),
        ("app,!tier", "a"),
    ],
)
def test_labels(selector: str, want: str) -> None:
    parsed = parse_label_selector(selector)
    assert [name for name, labels in LABELLED.items() if parsed.matches(labels)] == want.split()


def test_absent_labels_match_like_empty_ones() -> None:
    assert parse_label_selector("!app").matches(None)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("app in (", r"unable to parse requirement: found '', expected: ',', '\)' or identifier"),
        ("app in", r"found '', expected: '\('"),
        ("app in a", r"found 'a', expected: '\('"),
        ("app in (a b)", r"found 'b', expected: ',' or '\)'"),
        ("app in (a", r"found '', expected: ',' or '\)'"),
        ("app in (=)", "found '=', expected"),
        ("app,", "found '', expected: identifier after ','"),
        (",app", "found ',', expected: !, identifier"),
        ("app a", "found 'a', expected: '=', '!=', '==', 'in', notin'"),
        ("app=(", r"found '\(', expected: identifier"),
        ("app=a b", "found 'b', expected: ',' or 'end of string'"),
        ("!", "found '', expected: !, identifier"),
        ("!app=a", "found '=', expected: ','"),
        ("a/b/c", "key: Invalid value"),
        ("-a", "key: Invalid value"),
        ("app=a_", "values: Invalid value"),
        ("app in (x,/)", "values: Invalid value"),
        ("app>x", "the value must be an integer"),
        ("app>", "the value must be an integer"),
        (f"app=a{'a' * 63}", "values: Invalid value"),
    ],
)
def test_invalid_label_selectors_are_refused(selector: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        parse_label_selector(selector)


def outcome(text: str) -> bool | str:
    try:
        return parse_label_selector(text).matches({"a": "b"})
    except BadRequest as error:
        return error.message


@given(st.text(alphabet="ab=!(),<> in/", max_size=12))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    found = outcome(text)
    assert isinstance(found, bool) or found.startswith("unable to parse requirement")


labels = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["", "1", "2"]))


@given(labels, st.sampled_from(["a", "b"]), st.sets(st.sampled_from(["", "1", "2"]), min_size=1))
def test_in_and_notin_are_opposites_and_equality_is_in_one(found: dict[str, str], key: str, values: set[str]) -> None:
    listed = ",".join(sorted(values))
    inside = parse_label_selector(f"{key} in ({listed})").matches(found)
    assert inside is (found.get(key) in values)
    assert parse_label_selector(f"{key} notin ({listed})").matches(found) is not inside
    assert any(parse_label_selector(f"{key}={value}").matches(found) for value in values) is inside


# Each kind of requirement on one key, and what it says of a value, or of `None` where there is no label.
ORACLE: dict[str, Callable[[str | None], bool]] = {
    "a": lambda value: value is not None,
    "!a": lambda value: value is None,
    "a=1": lambda value: value == "1",
    "a!=1": lambda value: value != "1",
    "a in (1,2)": lambda value: value in ("1", "2"),
    "a notin (2,)": lambda value: value not in ("2", ""),
    "a>1": lambda value: value in ("2", "3"),
    "a>2": lambda value: value == "3",
    "a<3": lambda value: value in ("1", "2"),
    "a<2": lambda value: value == "1",
}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(sorted(ORACLE))), max_size=5),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "1", "2", "3", "x"])),
)
def test_all_requirements_must_match(asked: list[tuple[str, str]], found: dict[str, str]) -> None:
    selector = ",".join(text.replace("a", key, 1) for key, text in asked)
    want = all(ORACLE[text](found.get(key)) for key, text in asked)
    assert parse_label_selector(selector).matches(found) is want


@pytest.mark.parametrize("text", [" ", "\t\n", "a ", "! ", "\\"])
@pytest.mark.parametrize("parse", [parse_label_selector, lambda text: parse_field_selector(text, "", "Pod")])
def test_texts_of_one_character_are_read_in_linear_time(parse: Callable[[str], Any], text: str) -> None:
    started = process_time()
    with suppress(BadRequest):
        parse(text * 30_000)
    # Seconds if it is quadratic.
    assert process_time() - started < 0.5


@dataclass(frozen=True)
class Case:
    id: str
    kind: tuple[str, str]
    selector: str
    document: Any
    want: bool = True


SLICE = ("resource.k8s.io", "ResourceSlice")
CASES = [
    Case("nothing asked", SLICE, "", {}),
    Case("by name", SLICE, "metadata.name=s", {"metadata": {"name": "s"}}),
    Case("by another name", SLICE, "metadata.name=s", {"metadata": {"name": "t"}}, False),
    Case("by two names", SLICE, "metadata.name=s,metadata.name=t", {"metadata": {"name": "s"}}, False),
    Case("by none of two names", SLICE, "metadata.name!=s,metadata.name!=t", {"metadata": {"name": "t"}}, False),
    Case("by a name that is excluded", SLICE, "metadata.name=s,metadata.name!=s", {"metadata": {"name": "s"}}, False),
    Case("by not that name", SLICE, "metadata.name!=s", {"metadata": {"name": "t"}}),
    Case("by two fields", SLICE, "spec.nodeName=n, spec.driver==d", {"spec": {"nodeName": "n", "driver": "d"}}),
    Case(
        "one of two differs", SLICE, "spec.nodeName=n,spec.driver=d", {"spec": {"nodeName": "n", "driver": "x"}}, False
    ),
    Case("absent is empty", SLICE, "spec.nodeName=", {"spec": {"allNodes": True}}),
    Case("by pool", SLICE, "spec.pool.name=p", {"spec": {"pool": {"name": "p"}}}),
    Case("a namespace where there is none", SLICE, "metadata.namespace=x", {"metadata": {"name": "s"}}, False),
    Case("pods by phase", ("", "Pod"), "status.phase!=Running", {"status": {"phase": "Pending"}}),
    Case("pods without host network", ("", "Pod"), "spec.hostNetwork=false", {"spec": {}}),
    Case("pods with host network", ("", "Pod"), "spec.hostNetwork=true", {"spec": {"hostNetwork": True}}),
    Case("nodes that take pods", ("", "Node"), "spec.unschedulable=false", {"metadata": {}}),
    Case("events by their source", ("", "Event"), "source=s", {"source": {"component": "s"}}),
    Case("events by who reports", ("", "Event"), "source=s", {"reportingComponent": "s"}),
    Case("events about an object", ("", "Event"), "involvedObject.uid=u", {"involvedObject": {"uid": "u"}}),
    Case("jobs that did nothing yet", ("batch", "Job"), "status.successful=0", {}),
    Case("escaped values", SLICE, r"metadata.name=a\,b\=c\\d", {"metadata": {"name": r"a,b=c\d"}}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_fields(case: Case) -> None:
    assert parse_field_selector(case.selector, *case.kind).matches(case.document) is case.want


@pytest.mark.parametrize(
    ("kind", "selector", "message"),
    [
        (
            ("resource.k8s.io", "ResourceClaim"),
            "spec.nope=1",
            '^"spec.nope" is not a known field selector: only "metadata.name", "metadata.namespace"$',
        ),
        (SLICE, "spec.nope=1", "field label not supported for ResourceSlice: spec.nope"),
        (SLICE, "metadata.name", "can't understand 'metadata.name'"),
        (SLICE, "metadata.name=a,x", "can't understand 'x'"),
        (SLICE, "metadata.name=a=b", "can't understand"),
        (SLICE, r"metadata.name=a\b", "can't understand"),
        (SLICE, ",", "can't understand"),
    ],
)
def test_invalid_field_selectors_are_refused(kind: tuple[str, str], selector: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        parse_field_selector(selector, *kind)


def test_exact_returns_the_only_possible_value() -> None:
    selector = parse_field_selector("metadata.name=a,spec.nodeName!=n", *SLICE)
    assert (selector.exact("metadata.name"), selector.exact("spec.nodeName")) == ("a", None)
