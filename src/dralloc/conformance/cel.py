"""Expressions: whether they compile when stored and when new, and their results for a device.

Acceptance, results and the presence of an error are compared. Of an error's text, the missing key or attribute is
compared. Of the cost, only whether it exceeds the limit is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from dralloc.api.codec import DecodeError, decode
from dralloc.api.resource_v1 import Device
from dralloc.cel.compiler import CheckedExpression, RefusalReason, RefusedExpression, check_selector, environment_for
from dralloc.cel.device import DeviceView
from dralloc.cel.environment import stored_environment
from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.program import Selector
from dralloc.conformance.vector_family import BadVectors, LineFamily, VectorOptions


def _identify(line: Mapping[str, Any]) -> str:
    return f"{line['expr']} on {line['device']['driver']}"


def _compare_line(line: Mapping[str, Any], options: VectorOptions) -> Iterator[str]:
    stored = check_selector(line["expr"], stored_environment())
    new = check_selector(line["expr"], environment_for(options.gates))
    for name, outcome in (("compile", stored), ("newCompile", new)):
        expected, got = _recorded_verdict(line[name]), _verdict(outcome)
        if got != expected:
            yield f"{name}: expected {expected!r} ({line[name]}), got {got!r}"
    if line["compile"] == "ok" and not isinstance(stored, RefusedExpression):
        yield from _compare_result(line, Selector(stored), _view(line["device"]))


def _recorded_verdict(text: str) -> str:
    if text == "ok":
        return "ok"
    if text.startswith("Too long"):
        return RefusalReason.TOO_LONG.value
    is_too_complex = text.startswith("Forbidden")
    return RefusalReason.TOO_COMPLEX.value if is_too_complex else RefusalReason.INVALID.value


def _verdict(outcome: CheckedExpression | RefusedExpression) -> str:
    return str(outcome.fault.value) if isinstance(outcome, RefusedExpression) else "ok"


def _compare_result(line: Mapping[str, Any], selector: Selector, device: DeviceView) -> Iterator[str]:
    # The generated code and the evaluator must agree.
    for name, run in (("matches", selector.matches), ("decide", selector.decide)):
        try:
            got: bool | str = run(device)
        except CelEvaluationError as error:
            got = str(error)
        yield from (f"{name}: {difference}" for difference in _differences(line, got))


def _differences(line: Mapping[str, Any], got: bool | str) -> Iterator[str]:
    recorded = line["error"]
    if not recorded:
        if got is not line["result"]:
            yield f"expected {line['result']}, got {got!r}"
    elif not isinstance(got, str):
        yield f"expected the error {recorded!r}, got {got}"
    elif (missing := _MISSING.match(recorded)) and not _names(got, missing[1] or missing[2]):
        yield f"expected the error {recorded!r}, got the error {got!r}"


def _names(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


_MISSING: Final = re.compile(r"no such key: (\S+)|attribute (\S+): ")


def _view(recorded: Mapping[str, Any]) -> DeviceView:
    try:
        device = decode(msgspec.json.encode(recorded), Device)
    except DecodeError as error:
        raise BadVectors(f"not a device: {error}") from None
    return DeviceView.build(recorded["driver"], device.attributes, device.capacity, device.allow_multiple_allocations)


FAMILY: Final = LineFamily(identify=_identify, compare=_compare_line)
