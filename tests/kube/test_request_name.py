"""Request names: parsed and printed in one place."""

from __future__ import annotations

import pytest

from dralloc.kube.request_name import RequestName


@pytest.mark.parametrize(
    ("text", "want"),
    [("a", RequestName("a")), ("a/b", RequestName("a", "b")), ("a/", RequestName("a", "")), ("", RequestName(""))],
)
def test_parse_and_print_are_inverse(text: str, want: RequestName) -> None:
    assert RequestName.parse(text) == want
    assert str(want) == text


def test_a_subrequest_is_in_references_to_its_request() -> None:
    references = {RequestName("a"), RequestName("b", "x")}
    assert [RequestName.parse(text).is_in(references) for text in ("a", "a/y", "b/x", "b", "b/y")] == [
        True,
        True,
        True,
        False,
        False,
    ]
