"""The cost estimate: Kubernetes' numbers, and the rules behind them."""

from __future__ import annotations

import contextlib
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given

from dralloc.cel.cost import estimate_cost
from dralloc.cel.cost_sizes import ENDLESS, declared_size
from dralloc.cel.cost_sizes import Path as SizePath
from dralloc.cel.environment import Environment, new_environment
from dralloc.cel.errors import CelError
from dralloc.cel.parser import parse
from dralloc.cel.type_checker import check_types
from tests.support.expressions import expression_texts

VECTORS = Path(__file__).parents[1] / "vectors" / "cel.jsonl.gz"
NEW = new_environment(has_multiple_allocations=True, has_list_attributes=False)
WITH_LISTS = new_environment(has_multiple_allocations=True, has_list_attributes=True)


def cost(text: str, environment: Environment = NEW) -> int:
    return estimate_cost(check_types(parse(text), environment)).max


@dataclass(frozen=True)
class Case:
    id: str
    text: str
    want: int


D = 'device.attributes["d"]'
CASES = [
    Case("constants are free", "true", 0),
    Case("a name and a field are a step each", "device.driver == ''", 2),
    Case("a driver has at most 63 characters", f"device.driver == '{'x' * 500}'", 9),
    Case("an attribute has at most 64", f"{D}.a == '{'x' * 500}'", 11),
    Case("a field of an attribute costs nothing", f"{D}.a.b.c", 4),
    Case("an optional field costs a step", f"{D}.?a.hasValue()", 5),
    Case("has is free", f"has({D}.a)", 3),
    Case("logic is free", "true && false || true", 0),
    Case("the dearer half of a conditional counts", "true ? device.driver == '' : false", 2),
    Case("lists cost ten", "[1, 2] == [1]", 21),
    Case("maps cost thirty", "{1: 2}.size() > 1", 32),
    Case("messages cost forty", "google.protobuf.Int64Value{value: 1} == 1", 41),
    Case("a macro runs for each of 32 attributes", f"{D}.all(k, true)", 3 + 32 * 3 + 1),
    Case("a name that is bound costs a list", "cel.bind(x, 1, x == 2)", 12),
    Case("text is read in tenths", "quantity('12345678901') == quantity('')", 3),
    Case("patterns multiply", f"{D}.a.matches('12345')", 4 + 7 * 2),
    Case("sorting compares all with all", "lists.range(10).sort().size()", 21 + 200 + 11 + 1),
    Case("a negative range is none", "lists.range(-9).size()", 12),
    Case("a key takes the size of its value", f"{D}.all(k, v, k.trim() == '')", 3 + 32 * (3 + 1 + 7) + 1),
    Case("types are of unknown size", "type(1) == int", 1844674407370955266),
    Case("quantities differ at unknown cost", "quantity('1') != quantity('2')", 1844674407370955266),
    Case("but a capacity by its key has no size", 'device.capacity["d"]["m"] != quantity("1")', 5),
    Case("joining texts of unknown size is endless", f"[{D}.a].join() == ''", 1844674407370955278),
    Case("all costs end at 64 bits", f"[{D}.a].join().split('').map(x, [x].join()).size() > 1", ENDLESS),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_estimate(case: Case) -> None:
    assert cost(case.text) == case.want


def test_list_attributes_are_searched_within_their_limit() -> None:
    assert cost(f"{D}.a.includes(1)", WITH_LISTS) == 4 + 64


@pytest.mark.slow
def test_recorded_estimates() -> None:
    lines = map(json.loads, gzip.decompress(VECTORS.read_bytes()).splitlines())
    recorded = {line["expr"]: line["maxCost"] for line in lines if line["maxCost"] is not None}
    assert len(recorded) > 1000
    assert {text: cost(text) for text in recorded} == recorded


BOUNDS = [
    ("device.driver.split('').all(x, x != '')", True),
    (f"{D}.map(k, k).sort().distinct().size() > 1", True),
    ("''.split(',').all(x, x != '')", False),
    ("''.findAll('').all(x, x != '')", False),
    ("[lists.range(900)].flatten().sort().size() > 1", False),
    ("{1: 1}.transformMapEntry(k, v, {v: 1, v + 1: 2}).size() > 1", False),
    ("device.capacity['d'].all(k, v, k + k == '')", False),
    ("device.capacity['d'].all(k, k + k == '')", True),
]


@pytest.mark.parametrize(("text", "is_upper_bound"), BOUNDS, ids=[text for text, _ in BOUNDS])
def test_an_estimate_that_may_be_too_low_is_no_upper_bound(text: str, is_upper_bound: bool) -> None:
    assert estimate_cost(check_types(parse(text), NEW)).is_upper_bound == is_upper_bound


PATHS = [
    (("device", "driver"), 63),
    (("device", "attributes"), 32),
    (("device", "attributes", "@keys"), 63),
    (("device", "attributes", "@values"), 32),
    (("device", "attributes", "@values", "@keys"), 32),
    (("device", "attributes", "@values", "model"), 64),
    (("device", "attributes", "@values", "@values"), 64),
    (("device", "attributes", "domain", "model"), None),
    (("device", "capacity", "@values", "memory"), None),
    (("device", "capacity", "@values", "@values"), 0),
    (("other",), None),
]


@pytest.mark.parametrize(("steps", "want"), PATHS, ids=[".".join(steps) for steps, _ in PATHS])
def test_declared_sizes(steps: tuple[str, ...], want: int | None) -> None:
    path = SizePath.of(steps[0])
    for step in steps[1:]:
        path = path.extended(step)
    size = declared_size(path)
    assert (size and size.max) == want


def test_the_deepest_expressions_are_estimated() -> None:
    assert cost("[" * 248 + "]" * 248 + ".size() == 1") == 248 * 10 + 2


@pytest.mark.slow
@pytest.mark.fuzz
@given(expression_texts())
def test_every_estimate_fits_64_bits(text: str) -> None:
    with contextlib.suppress(CelError):
        assert 0 <= cost(text) <= ENDLESS
