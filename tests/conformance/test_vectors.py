"""Recorded answers of Kubernetes: ours agree, except for listed differences."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.conformance.vector_family import (
    FAMILIES,
    VectorOptions,
    VectorTally,
    known_differences,
    load_family,
    read_lines,
)
from dralloc.primitives.features import FeatureGates

VECTORS = Path(__file__).parent.parent / "vectors"
UPSTREAM = "upstream-validation.jsonl.gz"


def tally(family: str, file: str, gates: str = "") -> VectorTally:
    counted = VectorTally(known_differences(family))
    for verdict in load_family(family).run(read_lines(VECTORS / file), VectorOptions(FeatureGates.parse(gates))):
        counted.count(verdict)
    return counted


def test_quantities() -> None:
    counted = tally("quantity", "quantity.jsonl.gz")
    assert (counted.total, counted.disagreements) == (1500, [])
    assert {verdict.line for verdict in counted.known_differences} == set(counted.known)
    assert len(counted.known_differences) <= counted.total // 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "gates", "total"),
    [
        ("api.jsonl.gz", "", 2473),
        ("api-consumable-capacity-off.jsonl.gz", "DRAConsumableCapacity=false", 658),
        ("upstream-validation.jsonl.gz", "", 4756),
    ],
)
def test_writes_to_the_api(file: str, gates: str, total: int) -> None:
    counted = tally("api", file, gates)
    assert (counted.total, counted.agreed, counted.disagreements) == (total, total, [])


def test_decisions_on_recorded_policies() -> None:
    counted = tally("access", "rbac.jsonl.gz")
    assert (counted.total, counted.agreed) == (300, 300)


@pytest.mark.parametrize("spoil", [{"allowed": True, "reason": ""}, {"allowed": False}, {"reason": "because"}])
def test_a_wrong_decision_is_a_disagreement(spoil: dict[str, object]) -> None:
    line = json.loads(read_lines(VECTORS / "rbac.jsonl.gz")[0])
    line["questions"] = [{**question, **spoil} for question in line["questions"]]
    (verdict,) = load_family("access").run([json.dumps(line).encode()], VectorOptions())
    assert verdict.differences


# --- The runner itself must be able to disagree --------------------------------------------------------------


Spoil = Callable[[dict[str, Any]], None]


@cache
def recorded_api_line(file: str, code: int) -> bytes:
    """The first recorded line with that code."""
    return next(line for line in read_lines(VECTORS / file) if json.loads(line)["code"] == code)


@pytest.mark.parametrize(
    ("spoil", "code", "file"),
    [
        (lambda line: line.update(code=422, causes=[]), 201, "api.jsonl.gz"),
        (lambda line: line.update(code=201, object={}), 422, "api.jsonl.gz"),
        (lambda line: line.update(causes=[]), 422, "api.jsonl.gz"),
        (lambda line: line.update(causes=[*line["causes"], ["FieldValueInvalid", "spec"]]), 422, "api.jsonl.gz"),
        (lambda line: line.update(code=201), 400, "api.jsonl.gz"),
        (lambda line: line["object"].update(status={"x": 1}), 201, "api.jsonl.gz"),
        (lambda line: line.update(path="/apis/resource.k8s.io/v9/resourceslices"), 201, "api.jsonl.gz"),
        (lambda line: line.update(causes=[]), 422, UPSTREAM),
        (lambda line: line.update(code=422, causes=[]), 201, UPSTREAM),
        (lambda line: line.update(object={}), 200, UPSTREAM),
    ],
)
def test_a_wrong_answer_is_a_disagreement(spoil: Spoil, code: int, file: str) -> None:
    line = json.loads(recorded_api_line(file, code))
    spoil(line)
    (verdict,) = load_family("api").run([json.dumps(line).encode()], VectorOptions())
    assert verdict.differences


@pytest.mark.parametrize(
    "line",
    [
        {"op": "parse", "text": "1Gi", "error": "x"},
        {"op": "parse", "text": "1K", "error": "", "string": "1K", "value": 1, "sign": 1, "format": "DecimalSI"},
        {"op": "cmp", "a": "1", "b": "2", "error": "", "cmp": 1, "equal": False},
        {"op": "add", "a": "1", "b": "2", "error": "", "string": "4", "value": 3, "sign": 1, "format": "DecimalSI"},
    ],
)
def test_a_wrong_quantity_is_a_disagreement(line: dict[str, object]) -> None:
    (verdict,) = load_family("quantity").run([json.dumps(line).encode()], VectorOptions())
    assert verdict.differences


# --- The command ---------------------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["conformance", *arguments])


def test_the_summary_counts_lines_and_known_differences() -> None:
    result = run("quantity", str(VECTORS / "quantity.jsonl.gz"))
    known, last = result.stdout.splitlines()
    assert known.startswith("known difference: json ")
    assert (last, result.exit_code) == ("1499 of 1500 agree", 0)


def test_disagreements_are_shown_on_request_and_exit_with_1(tmp_path: Path) -> None:
    lines = [
        {"op": "parse", "text": "1Gi", "error": "x"},
        {"op": "cmp", "a": "1", "b": "2", "error": "", "cmp": -1, "equal": False},
    ]
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    quiet, verbose = run("quantity", str(file)), run("quantity", "-v", str(file))
    assert (quiet.exit_code, quiet.stdout) == (1, "1 of 2 agree\n")
    assert verbose.exit_code == 1
    assert verbose.stdout.splitlines()[1:] == ["    error: expected True, got False", "1 of 2 agree"]
    assert "parse '1Gi'" in verbose.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not json", "line 1"),
        (b"[1]", "line 1"),
        (b'{"op":"parse"}', "line 1: 'error'"),
        (b'{"op":"dance","error":""}', "line 1"),
        (gzip.compress(b'{"op":"cmp"}', mtime=0)[:-9], "not a gzip file"),
    ],
)
def test_invalid_files_are_rejected(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_bytes(content)
    result = run("quantity", str(file))
    assert result.exit_code == 2
    assert said in result.stderr


def test_unknown_families_and_missing_files_are_rejected() -> None:
    assert run("nonsense", "x").exit_code == 2
    assert "known: " + ", ".join(FAMILIES) in run("nonsense", "x").stderr
    assert "No such file" in run("quantity", "/proc/nonexistent").stderr
