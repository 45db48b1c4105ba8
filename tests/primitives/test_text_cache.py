"""A cache of texts keeps short ones."""

from __future__ import annotations

from dralloc.primitives.text_cache import cached_by_text


def test_results_for_short_texts_are_kept_and_those_for_long_ones_are_not() -> None:
    asked: list[str] = []

    @cached_by_text(2, 3)
    def length_of(text: str) -> int:
        asked.append(text)
        return len(text)

    for text in ("abc", "abcd", "abc", "abcd"):
        assert length_of(text) == len(text)
    assert asked == ["abc", "abcd", "abcd"]


def test_as_many_are_kept_as_stated() -> None:
    asked: list[bytes] = []

    @cached_by_text(2)
    def last_of(text: bytes) -> bytes:
        asked.append(text)
        return text[-1:]

    for text in (b"a", b"b", b"c", b"a"):
        assert last_of(text) == text
    assert asked == [b"a", b"b", b"c", b"a"]
