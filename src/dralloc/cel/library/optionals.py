"""Optional values. `or` and `orValue` may skip their argument, so the evaluator implements them."""

from __future__ import annotations

from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Anything, Library
from dralloc.cel.meter import Meter
from dralloc.cel.values import NONE, DomainMap, Duration, Optional, Timestamp, Uint, Value

LIBRARY: Final = Library()
define: Final = LIBRARY.define


define("optional.of", Anything)(Optional)
define("optional.none")(lambda: NONE)
define("optional.ofNonZeroValue", Anything)(lambda value: NONE if is_zero(value) else Optional(value))


_ZERO_WHEN_FALSE: Final = frozenset({bool, int, Uint, float, str, bytes, list, dict, DomainMap, type(None)})
# 0001-01-01T00:00:00Z, the zero time of Go.
_ZERO_INSTANT: Final = Timestamp(-62_135_596_800 * 10**9)


def is_zero(value: Value) -> bool:
    """True for the zero value of a type. Library values and optionals are never zero."""
    kind = value.__class__
    if kind in _ZERO_WHEN_FALSE:
        return not value
    if kind is Duration:
        return bool(value.nanos == 0)
    if kind is Timestamp:
        return bool(value.nanos == _ZERO_INSTANT.nanos)
    return False


define("hasValue", Optional)(lambda optional: optional.is_present)


@define("value", Optional)
def value(optional: Optional) -> Value:
    if not optional.is_present:
        raise CelEvaluationError("optional.none() dereference")
    return optional.value


@define("optional.unwrap", list, metered=True)
@define("unwrapOpt", list, metered=True)
def unwrap(meter: Meter, optionals: list[Value]) -> list[Value]:
    """Returns the values of those that have one."""
    meter.spend(len(optionals))
    if any(optional.__class__ is not Optional for optional in optionals):
        raise CelEvaluationError("no such overload: unwrap takes a list of optional values")
    return [optional.value for optional in optionals if optional.is_present]
