"""Quantities: recorded answers of Kubernetes, and arithmetic against exact fractions."""

from __future__ import annotations

import copy
import gzip
import json
import pickle
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dralloc.primitives.quantity import INT64_MAX, NANOS, Format, Quantity, QuantityError

VECTORS = Path(__file__).parent.parent / "vectors" / "quantity.jsonl.gz"


@dataclass(frozen=True)
class Case:
    text: str
    want: str
    why: str


CANONICAL = [
    Case("1024Ki", "1Mi", "binary text is divided while it divides evenly"),
    Case("1.5Gi", "1536Mi", "a binary fraction becomes a whole number of a smaller unit"),
    Case("0.1Gi", "107374182400m", "binary text that is no whole number prints in decimal"),
    Case("0.3Ki", "307200m", "below 1024 prints in decimal"),
    Case("1024", "1024", "plain text never becomes binary"),
    Case("1.5", "1500m", "no fraction is printed"),
    Case("1000k", "1M", "the largest suffix that keeps an integer"),
    Case("0.5e0", "500e-3", "an exponent stays an exponent"),
    Case("1200e1", "12e3", "exponents are multiples of three"),
    Case("3.5n", "4n", "finer than nano is rounded away from zero"),
    Case("-1.1n", "-2n", "also below zero"),
    Case("0.000000000001Ki", "2n", "a tiny binary amount becomes decimal"),
    Case("8Ei", "9223372036854775807", "binary text is capped at 64 bits"),
    Case("18446744073709551616", "18446744073709551616", "decimal text is not"),
    Case("0Ki", "0", "zero has no suffix"),
    Case("-0", "0", "nor a sign"),
    Case(".", "0", "a dot is zero"),
    Case("007", "007", "text taken for canonical is kept"),
    Case("1.500", "1.500", "also with zeros at the end"),
    Case("1000E", "1", "no suffix is left above exa"),
]


@pytest.mark.parametrize("case", CANONICAL, ids=lambda case: f"{case.text}: {case.why}")
def test_canonical_text(case: Case) -> None:
    assert str(Quantity.parse(case.text)) == case.want


@pytest.mark.parametrize(
    "text",
    ["", " ", " 1", "1 ", "1K", "1ki", "1mi", "1i", "e", "1e", "1e1.5", "1.2.3", "--1", "1B", "Ei", "½", "١", "1\n", "NaN", "inf", "0x1", "1_000", "1,5"],
)  # fmt: skip
def test_invalid_quantities_are_rejected(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["1e4001", "9" * 4001, "1e1000000000", "1e99999999999999999999", "9" * 5000 + "n"])
def test_an_excessive_exponent_is_rejected(text: str) -> None:
    with pytest.raises(QuantityError, match=r"large|long"):
        Quantity.parse(text)


def test_a_tiny_amount_is_not_rounded_to_zero() -> None:
    assert Quantity.parse("1e-1000000000").nanos == 1


def test_booleans_are_not_quantities() -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(True)


def test_equality_order_and_hash_follow_the_number() -> None:
    assert Quantity.parse("1Ki") == Quantity.parse("1024") == Quantity.parse("1024000m")
    assert hash(Quantity.parse("1Ki")) == hash(Quantity.parse("1024"))
    assert Quantity.parse("1M") < Quantity.parse("1Mi") <= Quantity.parse("1048576") < Quantity.parse("1e7")
    assert Quantity.parse("1") != 1


def test_arithmetic_drops_the_text_and_keeps_the_left_notation() -> None:
    assert str(Quantity.parse("+5") + Quantity.ZERO) == "5"
    assert str(Quantity.parse("1Gi") - Quantity.parse("512Mi")) == "512Mi"
    assert str(Quantity.parse("1000") + Quantity.parse("1Ki")) == "2024"
    assert str(Quantity.ZERO + Quantity.parse("2Ki")) == "2Ki"
    assert str(Quantity.ZERO - Quantity.parse("2Ki")) == "-2Ki"


def test_a_quantity_of_units_or_thousandths_prints_in_the_given_notation() -> None:
    assert str(Quantity.of(3 * 2**30, Format.BINARY_SI)) == "3Gi"
    assert str(Quantity.of_milli(300)) == "300m"
    assert str(Quantity.of_milli(2000, Format.BINARY_SI)) == "2"


def test_thousandths_are_exact_or_absent() -> None:
    assert Quantity.parse("250m").milli == 250
    assert Quantity.parse("1").milli == 1000
    assert Quantity.parse("1u").milli is None
    assert Quantity.parse("9223372036854775").milli == 9223372036854775000
    assert Quantity.parse("9223372036854776").milli is None


def test_quantities_are_immutable_and_survive_copying() -> None:
    quantity = Quantity.parse("007Ki")
    with pytest.raises(AttributeError):
        quantity.nanos = 1
    with pytest.raises(AttributeError):
        del quantity.nanos
    for copied in (copy.deepcopy(quantity), pickle.loads(pickle.dumps(quantity))):
        assert (copied, str(copied), copied.format) == (quantity, "007Ki", Format.BINARY_SI)


def test_every_recorded_answer() -> None:
    with gzip.open(VECTORS, "rt", encoding="utf-8") as lines:
        disagreements = [line for line in map(json.loads, lines) if line["op"] != "json" and not agrees(line)]
    assert disagreements == []


def agrees(line: dict[str, Any]) -> bool:
    try:
        quantity = calculate(line)
    except QuantityError:
        return bool(line["error"])
    if isinstance(quantity, int):
        return not line["error"] and quantity == line["cmp"]
    seen = (str(quantity), quantity.int64_value, quantity.small_integer, quantity.sign, quantity.format.value)
    return not line["error"] and seen == tuple(line[key] for key in ("string", "value", "int64", "sign", "format"))


def calculate(line: dict[str, Any]) -> Quantity | int:
    if line["op"] == "parse":
        return Quantity.parse(line["text"])
    left, right = Quantity.parse(line["a"]), Quantity.parse(line["b"])
    match line["op"]:
        case "add":
            return left + right
        case "sub":
            return left - right
        case _:
            return (left > right) - (left < right)


# --- Properties ----------------------------------------------------------------------------------------------

amounts = st.one_of(st.integers(-(10**6), 10**6), st.integers(-(10**30), 10**30))
quantities = st.builds(
    lambda nanos, format: Quantity.parse(f"{nanos}n") + Quantity.of(0, format), amounts, st.sampled_from(Format)
)
suffixes = [
    "",
    "n",
    "u",
    "m",
    "k",
    "M",
    "G",
    "T",
    "P",
    "E",
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
    "e3",
    "E-7",
    "e+0",
    "e12",
]
FACTORS = {suffix: Fraction(10) ** exponent for suffix, exponent in zip("num kMGTPE", range(-9, 19, 3), strict=True)}
FACTORS |= {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
FACTORS |= {"": Fraction(1)}
decimal_texts = st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{0,15})?", fullmatch=True)


@given(decimal_texts, st.sampled_from(suffixes))
@example("0.0000000001", "")
@example("-8", "Ei")
def test_parsing_rounds_away_from_zero_to_nanos(number: str, suffix: str) -> None:
    exact = Fraction(number) * (
        Fraction(10) ** int(suffix[1:]) if suffix[1:].lstrip("+-").isdigit() else FACTORS[suffix]
    )
    nanos = -(-abs(exact) * NANOS // 1)
    if suffix.endswith("i"):
        nanos = min(nanos, INT64_MAX * NANOS)
    assert Quantity.parse(number + suffix).nanos == (nanos if exact >= 0 else -nanos)


@given(decimal_texts, st.sampled_from(suffixes))
def test_printed_text_round_trips(number: str, suffix: str) -> None:
    quantity = Quantity.parse(number + suffix) + Quantity.ZERO
    text = str(quantity)
    if abs(quantity.nanos) >= 10**30 and text[-1].isdecimal() and quantity.format is Format.DECIMAL_SI:
        return  # Above exa the suffix is lost, as in Kubernetes.
    assert Quantity.parse(text) == quantity
    assert str(Quantity.parse(text)) == text


@given(quantities, quantities)
def test_sums_differences_and_order_match_exact_fractions(left: Quantity, right: Quantity) -> None:
    a, b = Fraction(left.nanos, NANOS), Fraction(right.nanos, NANOS)
    assert Fraction((left + right).nanos, NANOS) == a + b
    assert Fraction((left - right).nanos, NANOS) == a - b
    assert (-left).nanos == -left.nanos
    assert (left < right, left <= right, left > right, left >= right, left == right) == (
        a < b,
        a <= b,
        a > b,
        a >= b,
        a == b,
    )
    assert (left.sign, bool(left)) == ((a > 0) - (a < 0), a != 0)


@given(quantities)
def test_the_value_is_rounded_away_from_zero(quantity: Quantity) -> None:
    exact = Fraction(quantity.nanos, NANOS)
    assert abs(quantity.value) == -(-abs(exact) // 1)
    assert quantity.value * quantity.sign >= 0


@pytest.mark.fuzz
@given(st.text(max_size=30) | st.text(alphabet="0123456789.+-eEKMGTPinumk ", max_size=30))
def test_any_text_is_a_quantity_or_a_quantity_error(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    assert Quantity.parse(str(quantity)).sign == quantity.sign
    assert -(2**63) <= quantity.int64_value < 2**63


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("1000E", "1000000000000000000000"),
        ("-2000E", "-2000000000000000000000"),
        ("1100E", "1100E"),
        ("1e21", "1e21"),
        ("1000P", "1E"),
        ("1Gi", "1Gi"),
    ],
)
def test_exact_text_never_loses_the_number(text: str, exact: str) -> None:
    quantity = Quantity.parse(text)
    assert quantity.exact_text == exact
    assert Quantity.parse(exact) == quantity


def test_exact_text_of_a_sum_keeps_its_fraction() -> None:
    total = Quantity.parse("1000E") + Quantity.parse("500m")
    assert Quantity.parse(total.exact_text) == total
