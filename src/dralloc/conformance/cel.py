"""Expressions: whether they compile when stored and when new, and their results for a device.

Acceptance, results and the presence of an error are compared. Of an error's text, the missing key or attribute is
compared. Of the cost, only whether it exceeds the limit is compared, but for Kubernetes' own test tables: their `variants`
state the estimate and the cost of the evaluation under each combination of features. The tables of derived attributes
have a `kind`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dralloc.cel.compiler import (
    CheckedExpression,
    RefusalReason,
    RefusedExpression,
    check_selector,
    compile_derived_attribute,
    compile_selector_expression,
    environment_for,
)
from dralloc.cel.derived_attribute import compile_derived
from dralloc.cel.device import DeviceView
from dralloc.cel.environment import Environment, new_environment, stored_environment
from dralloc.cel.errors import CelCompileError, CelError, CelEvaluationError
from dralloc.cel.program import Selector, compile_selector
from dralloc.conformance.vector_family import BadVectors, LineFamily, VectorOptions
from dralloc.kube.codec import DecodeError, decode
from dralloc.kube.resource_v1 import Device


def _identify(line: Mapping[str, Any]) -> str:
    return str(line["name"]) if "name" in line else f"{line['expr']} on {line['device']['driver']}"


def _compare_line(line: Mapping[str, Any], options: VectorOptions) -> Iterator[str]:
    match line.get("kind"):
        case "derived-compile":
            yield from _compare_compilation(line, _environment_of(line), is_selector=False)
        case "derived-eval":
            yield from _compare_derived(line)
        case _:
            yield from _compare_selector(line, options)
            measured: dict[Environment, _Measured] = {}
            for variant in line.get("variants") or ():
                compared = _compare_variant(line, variant, measured)
                yield from (f"{_named(variant)}: {difference}" for difference in compared)


def _compare_selector(line: Mapping[str, Any], options: VectorOptions) -> Iterator[str]:
    stored = check_selector(line["expr"], stored_environment())
    new = check_selector(line["expr"], environment_for(options.gates))
    for name, outcome in (("compile", stored), ("newCompile", new)):
        expected, got = _recorded_verdict(line[name]), _verdict(outcome)
        if got != expected:
            yield f"{name}: expected {expected!r} ({line[name]}), got {got!r}"
    if line["compile"] == "ok" and not isinstance(stored, RefusedExpression):
        yield from _compare_result(line, Selector(stored), _view(line["device"]))


# --- Kubernetes' own tables --------------------------------------------------------------------------------------


class _Measured(NamedTuple):
    """The result of an evaluation, or its error, and the cost if it succeeded."""

    result: bool | str
    cost: int | None = None


def _compare_variant(
    line: Mapping[str, Any], variant: Mapping[str, Any], measured: dict[Environment, _Measured]
) -> Iterator[str]:
    environment = _environment_of(variant)
    differences = tuple(_compare_compilation({"expr": line["expr"], **variant}, environment, is_selector=True))
    yield from differences
    if differences or variant["compile"] != "ok":
        return
    # All stored variants have the same environment, and an evaluation may be expensive.
    if environment not in measured:
        measured[environment] = _measure(line, environment)
    result, cost = measured[environment]
    yield from _differences({"result": None, "error": "", **variant}, result)
    if cost is not None and cost != variant["actualCost"]:
        yield f"expected the cost {variant['actualCost']}, got {cost}"


def _measure(line: Mapping[str, Any], environment: Environment) -> _Measured:
    try:
        return _Measured(*compile_selector(line["expr"], environment).measure(_view(line["device"])))
    except CelEvaluationError as error:
        return _Measured(str(error))


def _compare_compilation(line: Mapping[str, Any], environment: Environment, *, is_selector: bool) -> Iterator[str]:
    """The table's compiler has no limits on length and cost."""
    compile_expression = compile_selector_expression if is_selector else compile_derived_attribute
    try:
        checked = compile_expression(line["expr"], environment)
    except CelCompileError as error:
        if line["compile"] == "ok":
            yield f"expected an expression that compiles, got {error}"
        return
    if line["compile"] != "ok":
        yield f"expected the error {line['compile']!r}, got an expression that compiles"
    elif checked.cost_max != line["maxCost"]:
        yield f"expected the estimate {line['maxCost']}, got {checked.cost_max}"


def _compare_derived(line: Mapping[str, Any]) -> Iterator[str]:
    expected, recorded = line["attr"], line.get("error")
    try:
        member, value = compile_derived(line["expr"]).evaluate(_view(line["device"]))
    except CelError as error:
        if recorded is None or not _names_missing(recorded, str(error)):
            yield f"expected {recorded or expected!r}, got the error {error}"
        return
    got = {member: list(value) if isinstance(value, tuple) else value}
    if recorded is not None or got != expected:
        yield f"expected {recorded or expected!r}, got {got!r}"


def _environment_of(table: Mapping[str, Any]) -> Environment:
    if table["env"] == "StoredExpressions":
        return stored_environment()
    return new_environment(
        has_multiple_allocations=table.get("consumableCapacity", True),
        has_list_attributes=table["listTypeAttributes"],
    )


def _named(variant: Mapping[str, Any]) -> str:
    on = [name for name in ("consumableCapacity", "listTypeAttributes") if variant[name]]
    return f"{variant['env']} with {' and '.join(on) or 'no feature'}"


# --- Verdicts ------------------------------------------------------------------------------------------------------


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
    elif not _names_missing(recorded, got):
        yield f"expected the error {recorded!r}, got the error {got!r}"


def _names_missing(recorded: str, got: str) -> bool:
    """True if our error names the key or attribute that the recorded one says is missing or malformed."""
    missing = _MISSING.match(recorded)
    return missing is None or re.search(rf"(?<!\w){re.escape(missing[1] or missing[2])}(?!\w)", got) is not None


_MISSING: Final = re.compile(r"no such key: (\S+)|attribute (\S+): ")


def _view(recorded: Mapping[str, Any]) -> DeviceView:
    try:
        device = decode(msgspec.json.encode(recorded), Device)
    except DecodeError as error:
        raise BadVectors(f"not a device: {error}") from None
    return DeviceView.build(recorded["driver"], device.attributes, device.capacity, device.allow_multiple_allocations)


FAMILY: Final = LineFamily(identify=_identify, compare=_compare_line)
