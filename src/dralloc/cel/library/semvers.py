"""Semantic versions."""

from __future__ import annotations

from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Library, text_cost
from dralloc.cel.values import INT_MAX
from dralloc.primitives.semver import Semver, SemverError

LIBRARY: Final = Library()
define: Final = LIBRARY.define


@define("semver", str, cost=text_cost)
@define("semver", str, bool, cost=text_cost)
def semver(text: str, normalize: bool = False) -> Semver:
    try:
        return Semver.normalize(text) if normalize else Semver.parse(text)
    except SemverError as fault:
        raise CelEvaluationError(str(fault)) from None


@define("isSemver", str, cost=text_cost)
@define("isSemver", str, bool, cost=text_cost)
def is_semver(text: str, normalize: bool = False) -> bool:
    try:
        semver(text, normalize)
    except CelEvaluationError:
        return False
    return True


@define("major", Semver)
def major(version: Semver) -> int:
    return _as_int(version.major)


@define("minor", Semver)
def minor(version: Semver) -> int:
    return _as_int(version.minor)


@define("patch", Semver)
def patch(version: Semver) -> int:
    return _as_int(version.patch)


def _as_int(number: int) -> int:
    """Converts the unsigned number to an int as Kubernetes does: the upper half becomes negative."""
    return number if number <= INT_MAX else number - 2**64


@define("compareTo", Semver, Semver)
def compare_to(left: Semver, right: Semver) -> int:
    return (left > right) - (left < right)


@define("isGreaterThan", Semver, Semver)
def is_greater_than(left: Semver, right: Semver) -> bool:
    return left > right


@define("isLessThan", Semver, Semver)
def is_less_than(left: Semver, right: Semver) -> bool:
    return left < right
