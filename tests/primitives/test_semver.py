"""Semantic versions: precedence as in semver 2.0, and the loose form that CEL allows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.primitives.semver import Semver, SemverError, fits_semver_grammar

ASCENDING = [
    "0.0.0-0", "0.0.0", "0.0.1", "0.2.0", "0.10.0", "1.0.0-0", "1.0.0-2", "1.0.0-11", "1.0.0--", "1.0.0-alpha", "1.0.0-alpha.1",
    "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "2.0.0", "10.0.0", "18446744073709551615.0.0",
]  # fmt: skip


def test_precedence_orders_every_pair() -> None:
    for (i, left), (j, right) in itertools.product(enumerate(map(Semver.parse, ASCENDING)), repeat=2):
        assert (left < right, left <= right, left > right, left >= right, left == right) == (
            i < j,
            i <= j,
            i > j,
            i >= j,
            i == j,
        )


def test_build_metadata_is_kept_and_ignored_in_comparisons() -> None:
    one, two = Semver.parse("1.2.3+one"), Semver.parse("1.2.3+two")
    assert one == two
    assert hash(one) == hash(two)
    assert not one < two
    assert (str(one), str(two)) == ("1.2.3+one", "1.2.3+two")


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.02.3", "1.2.3-01", "1.2.3-", "1.2.3+", "1.2.3-a..b", "1.2.3+a..b", " 1.2.3", "1.2.3\n", "1.2.3-ä", "-1.2.3", "١.0.0"],
)  # fmt: skip
def test_invalid_versions_are_rejected(text: str) -> None:
    assert not fits_semver_grammar(text)
    with pytest.raises(SemverError):
        Semver.parse(text)


@pytest.mark.parametrize("text", ["18446744073709551616.0.0", "1.0.0-99999999999999999999", "1." + "9" * 5000 + ".0"])
def test_numbers_beyond_64_bits_match_the_grammar_but_do_not_parse(text: str) -> None:
    assert fits_semver_grammar(text)
    with pytest.raises(SemverError, match="64 bits"):
        Semver.parse(text)


@pytest.mark.parametrize(
    ("loose", "strict"),
    [
        ("v1", "1.0.0"),
        ("1.2", "1.2.0"),
        ("v01.2", "1.2.0"),
        ("01.02.03", "1.2.3"),
        ("1.2.003-rc.1+b", "1.2.3-rc.1+b"),
        ("0.0.0-0", "0.0.0-0"),
    ],
)
def test_loosely_written_versions_are_normalized(loose: str, strict: str) -> None:
    assert str(Semver.normalize(loose)) == strict


@pytest.mark.parametrize("text", ["", "1+build", "v1.0-rc", "1.x", "1.2.x", "1.2.3.4", "V1.0.0", "1.2.3-01", " 1"])
def test_versions_that_cannot_be_normalized_are_rejected(text: str) -> None:
    with pytest.raises(SemverError):
        Semver.normalize(text)


@given(st.integers(0, 2**64 - 1), st.integers(0, 99), st.integers(0, 99))
def test_version_numbers_are_parsed_as_written(major: int, minor: int, patch: int) -> None:
    version = Semver.parse(f"{major}.{minor}.{patch}")
    assert (version.major, version.minor, version.patch) == (major, minor, patch)
    assert Semver.normalize(f"v00{major}.0{minor}.0{patch}") == version


@pytest.mark.fuzz
@given(st.text(alphabet="0123456789.-+vabcXYZ ", max_size=20))
def test_any_text_is_a_version_or_a_semver_error(text: str) -> None:
    for read in (Semver.parse, Semver.normalize):
        try:
            version = read(text)
        except SemverError:
            continue
        assert Semver.parse(str(version)) == version
