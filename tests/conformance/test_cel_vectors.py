"""Recorded answers about expressions: ours agree, and a wrong one is detected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dralloc.conformance.vector_family import (
    BadVectors,
    VectorOptions,
    VectorTally,
    known_differences,
    load_family,
    read_lines,
)
from dralloc.primitives.features import FeatureGates

VECTORS = Path(__file__).parent.parent / "vectors"


def tally(file: str) -> VectorTally:
    counted = VectorTally(known_differences("cel"))
    for verdict in load_family("cel").run(read_lines(VECTORS / file), VectorOptions()):
        counted.count(verdict)
    return counted


@pytest.mark.slow
def test_expressions() -> None:
    counted = tally("cel.jsonl.gz")
    assert (counted.total, counted.disagreements) == (1500, [])
    assert len(counted.known_differences) <= counted.total // 100


@pytest.mark.slow
@pytest.mark.parametrize(("file", "total"), [("upstream-cel.jsonl.gz", 71), ("upstream-cel-derived.jsonl.gz", 40)])
def test_upstream_tables(file: str, total: int) -> None:
    counted = tally(file)
    assert (counted.total, counted.agreed, counted.disagreements) == (total, total, [])


def line(**changes: Any) -> bytes:
    """A line that we agree with, except for the changes."""
    agreed = {
        "expr": 'device.attributes["d"].a == 1',
        "device": {"driver": "d", "attributes": {"a": {"int": 1}}},
        "compile": "ok",
        "newCompile": "ok",
        "result": True,
        "error": "",
    }
    return json.dumps(agreed | changes).encode()


def differences(text: bytes, gates: str = "") -> tuple[str, ...]:
    (verdict,) = load_family("cel").run([text], VectorOptions(FeatureGates.parse(gates)))
    return verdict.differences


OTHER_DEVICE = {"driver": "d", "attributes": {"b": {"int": 1}}}
BAD_DEVICE = {"driver": "d", "attributes": {"a": {"int": 1}, "v": {"version": "x"}}}


@pytest.mark.parametrize(
    "agreed",
    [
        line(),
        line(expr="1", compile="compilation failed: …", newCompile="compilation failed: …", result=None),
        line(expr="true" + " " * 10240, newCompile="Too long: …"),
        line(expr="type(1) == int", newCompile="Forbidden: too complex"),
        line(device=OTHER_DEVICE, result=None, error="no such key: a"),
        line(device=BAD_DEVICE, result=None, error="attribute v: not a version"),
    ],
)
def test_agreement(agreed: bytes) -> None:
    assert differences(agreed) == ()


@pytest.mark.parametrize(
    "spoiled",
    [
        line(compile="compilation failed: …"),
        line(newCompile="compilation failed: …"),
        line(newCompile="Forbidden: too complex"),
        line(result=False),
        line(result=None, error="no such overload"),
        line(device=OTHER_DEVICE),
        line(device=OTHER_DEVICE, result=None, error="no such key: other"),
        line(device=BAD_DEVICE, result=None, error="attribute other: not a version"),
    ],
)
def test_a_wrong_answer_is_a_disagreement(spoiled: bytes) -> None:
    assert differences(spoiled)


VARIANT = {
    "env": "StoredExpressions",
    "consumableCapacity": True,
    "listTypeAttributes": True,
    "compile": "ok",
    "maxCost": 5,
    "actualCost": 5,
    "result": True,
}
COMPILED = {
    "kind": "derived-compile",
    "name": "n",
    "expr": "[1]",
    "env": "NewExpressions",
    "listTypeAttributes": True,
    "compile": "ok",
    "maxCost": 10,
}
EVALUATED = {"kind": "derived-eval", "name": "n", "expr": "[1]", "device": {"driver": "d"}, "attr": {"ints": [1]}}


@pytest.mark.parametrize(
    ("agreed", "changes"),
    [
        (line(variants=[VARIANT]), {"variants": [VARIANT | {"compile": "no"}]}),
        (line(variants=[VARIANT]), {"variants": [VARIANT | {"maxCost": 4}]}),
        (line(variants=[VARIANT]), {"variants": [VARIANT | {"actualCost": 4}]}),
        (line(variants=[VARIANT]), {"variants": [VARIANT | {"result": False}]}),
        (json.dumps(COMPILED), {"compile": "must evaluate to a scalar"}),
        (json.dumps(COMPILED), {"maxCost": 11}),
        (json.dumps(COMPILED), {"listTypeAttributes": False}),
        (json.dumps(EVALUATED), {"attr": {"int": 1}}),
        (json.dumps(EVALUATED), {"attr": None, "error": "no such key: a"}),
        (json.dumps(EVALUATED), {"expr": "null"}),
    ],
)
def test_a_wrong_answer_of_a_table_is_a_disagreement(agreed: str, changes: dict[str, Any]) -> None:
    recorded = json.loads(agreed)
    assert differences(json.dumps(recorded).encode()) == ()
    assert differences(json.dumps(recorded | changes).encode())


def test_new_expressions_are_checked_under_the_gates() -> None:
    shared = line(expr="device.allowMultipleAllocations || true")
    assert differences(shared) == ()
    assert differences(shared, "DRAConsumableCapacity=false,DRAFractionalCapacityRange=false")


@pytest.mark.parametrize("broken", [b"{}", b"[]", line(device={"driver": "d", "attributes": 1})])
def test_a_file_of_another_family_is_rejected(broken: bytes) -> None:
    with pytest.raises(BadVectors):
        differences(broken)
