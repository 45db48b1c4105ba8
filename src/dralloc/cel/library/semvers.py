"""Semantic versions."""

from __future__ import annotations

from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Library, accepted_by, text_cost
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


define("isSemver", str, cost=text_cost)(accepted_by(semver))
define("isSemver", str, bool, cost=text_cost)(accepted_by(semver))
define("major", Semver)(lambda version: _as_int(version.major))
define("minor", Semver)(lambda version: _as_int(version.minor))
define("patch", Semver)(lambda version: _as_int(version.patch))


def _as_int(number: int) -> int:
    """Converts the unsigned number to an int as Kubernetes does: the upper half becomes negative."""
    return number if number <= INT_MAX else number - 2**64


define("compareTo", Semver, Semver)(lambda left, right: (left > right) - (left < right))
define("isGreaterThan", Semver, Semver)(lambda left, right: left > right)
define("isLessThan", Semver, Semver)(lambda left, right: left < right)
