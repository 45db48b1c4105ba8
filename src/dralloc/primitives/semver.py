"""Semantic versions (semver 2.0) as values; driver attributes of type version compare by them.

Order and equality follow precedence: build metadata is kept but ignored. The numbers have at most 64 bits, as in
Kubernetes: a longer number matches the grammar, which is all that validation requires, but a selector cannot compare
it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple, Self

UINT64_MAX: Final = 2**64 - 1

_NUMBER: Final = r"(0|[1-9][0-9]*)"
_PRERELEASE_PART: Final = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD_PART: Final = r"[0-9a-zA-Z-]+"
_GRAMMAR: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PRERELEASE_PART}(?:\.{_PRERELEASE_PART})*))?(?:\+{_BUILD_PART}(?:\.{_BUILD_PART})*)?",
    re.ASCII,
)

# Numeric identifiers precede others and sort as numbers.
_PrereleasePart = tuple[int, int, str]


class SemverError(ValueError):
    """A text that is not a semantic version."""


class _Precedence(NamedTuple):
    major: int
    minor: int
    patch: int
    # A release follows all its prereleases.
    is_release: bool
    prerelease: tuple[_PrereleasePart, ...]


class Semver:
    """A version: it keeps its text and compares by precedence alone."""

    __slots__ = ("precedence", "text")

    def __init__(self, text: str, precedence: _Precedence) -> None:
        self.text: Final = text
        self.precedence: Final = precedence

    @classmethod
    def parse(cls, text: str) -> Semver:
        """Parses a complete version: major, minor and patch, without a prefix."""
        return _parse(text)

    @classmethod
    def normalize(cls, text: str) -> Semver:
        """Parses a loosely written version: `v1.02` is 1.2.0."""
        parts = [_without_leading_zeros(part) for part in text.removeprefix("v").split(".", 2)]
        if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
            raise SemverError(f"{_shortened(text)!r}: a short version cannot have prerelease or build metadata")
        return _parse(".".join([*parts, "0", "0"][:3]))

    @property
    def major(self) -> int:
        return self.precedence.major

    @property
    def minor(self) -> int:
        return self.precedence.minor

    @property
    def patch(self) -> int:
        return self.precedence.patch

    def __eq__(self, other: object) -> bool:
        return self.precedence == other.precedence if isinstance(other, Semver) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.precedence)

    def __lt__(self, other: Self) -> bool:
        return self.precedence < other.precedence

    def __le__(self, other: Self) -> bool:
        return self.precedence <= other.precedence

    def __gt__(self, other: Self) -> bool:
        return self.precedence > other.precedence

    def __ge__(self, other: Self) -> bool:
        return self.precedence >= other.precedence

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Semver({self.text!r})"


def fits_semver_grammar(text: str) -> bool:
    """True if the text has the form of a version, however large its numbers are."""
    return _GRAMMAR.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _parse(text: str) -> Semver:
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise SemverError(
            f"{_shortened(text)!r} is not a semantic version: write MAJOR.MINOR.PATCH, such as 1.2.3 or 1.2.3-beta.1"
        )
    parts = tuple(_prerelease_part(part) for part in match[4].split(".")) if match[4] else ()
    return Semver(text, _Precedence(_number(match[1]), _number(match[2]), _number(match[3]), not parts, parts))


def _prerelease_part(text: str) -> _PrereleasePart:
    return (0, _number(text), "") if text.isdecimal() else (1, 0, text)


def _number(digits: str) -> int:
    # Check the length first: Python refuses to parse thousands of digits.
    if len(digits) > 20 or int(digits) > UINT64_MAX:
        raise SemverError(f"{_shortened(digits)} is too large for a version number: it does not fit 64 bits")
    return int(digits)


def _without_leading_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1].isdecimal() else f"0{stripped}"


def _shortened(text: str) -> str:
    return text if len(text) <= 70 else f"{text[:67]}..."
