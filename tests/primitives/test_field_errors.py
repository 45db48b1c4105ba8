"""Paths and messages of field errors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from dralloc.primitives.field_errors import (
    FAULTS_MAX,
    FAULTS_TEXT_MAX,
    SHOWN_MAX,
    FieldError,
    FieldPath,
    distinct,
    duplicate,
    first_faults,
    forbidden,
    internal,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)

SPEC = FieldPath.of("spec")


def test_names_positions_and_keys_print_as_kubernetes_prints_them() -> None:
    path = SPEC.child("devices").index(3).child("capacity").key("gpu.example.com/memory").child("value")
    assert str(path) == "spec.devices[3].capacity[gpu.example.com/memory].value"
    assert path.steps == ("spec", "devices", 3, "capacity", "gpu.example.com/memory", "value")


def test_equal_paths_compare_equal() -> None:
    assert SPEC.child("a", "b") == FieldPath.of("spec", "a").child("b")
    assert len({SPEC.index(1), FieldPath.of("spec").index(1), SPEC.index(2)}) == 2


def test_a_field_error_prints_path_kind_value_and_reason() -> None:
    assert str(required(SPEC.child("driver"))) == "spec.driver: Required value"
    assert str(invalid(SPEC, "x", "no good")) == 'spec: Invalid value: "x": no good'
    assert str(invalid(SPEC, None, "field is immutable")) == "spec: Invalid value: null: field is immutable"
    assert str(not_supported(SPEC, "c", ("b", "a"))) == 'spec: Unsupported value: "c": supported values: "a", "b"'
    assert str(too_many(SPEC, 9, 8)) == "spec: Too many: 9: must have at most 8 items"


def test_values_that_contain_numbers_with_their_text_are_printed() -> None:
    class NumberWithText(float):
        __slots__ = ("text",)

    error = invalid(FieldPath.of("spec"), {"a": [NumberWithText("1.50"), 2]}, "must be empty")
    assert str(error) == 'spec: Invalid value: {"a":[1.5,2]}: must be empty'


def test_a_fault_shows_the_beginning_of_a_large_value_key_or_reason() -> None:
    large = "x" * 3_000_000
    values = [large, [large] * 3, {large: 1}, {"a": {"b": [large, 1]}}, ["x"] * 1_000_000]
    for fault in (
        *(invalid(SPEC, value, "no good") for value in values),
        duplicate(SPEC.key(large), ""),
        forbidden(SPEC.child(large), ""),
        not_supported(SPEC, "c", (large,)),
        not_found(SPEC, "c", large),
        internal(SPEC, large),
    ):
        assert len(str(fault)) < 2 * SHOWN_MAX
        assert "…" in str(fault)


def test_few_faults_are_all_told() -> None:
    faults = [invalid(SPEC.index(number), number, "no good") for number in range(FAULTS_MAX)]
    assert first_faults(faults) == tuple(faults)


def test_of_many_faults_the_first_are_looked_for_and_the_last_one_says_so() -> None:
    def validate() -> Iterator[FieldError]:
        for number in count():
            looked_for.append(number)
            yield invalid(SPEC.index(number), number, "no good")

    looked_for: list[int] = []
    told = first_faults(validate())
    assert (len(told), len(looked_for)) == (FAULTS_MAX, FAULTS_MAX + 1)
    assert str(told[-1]) == f"spec[{FAULTS_MAX - 1}]: Too many: more faults than are listed: correct these first"
    assert first_faults(told) == told


def test_long_faults_are_fewer() -> None:
    told = first_faults(invalid(SPEC.index(number), "x" * 10_000, "no good") for number in count())
    assert FAULTS_TEXT_MAX / 2 < sum(len(str(fault)) for fault in told) < 2 * FAULTS_TEXT_MAX
    assert told[-1].reason == "FieldValueTooMany"


def test_equal_faults_count_as_one() -> None:
    faults = [required(SPEC), required(SPEC), required(SPEC.child("driver")), required(SPEC)]
    assert [str(fault) for fault in distinct(faults)] == [
        "spec: Required value",
        "spec.driver: Required value",
    ]
