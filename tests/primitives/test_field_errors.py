"""Paths and messages of field errors."""

from __future__ import annotations

from dralloc.primitives.field_errors import (
    FieldPath,
    distinct,
    invalid,
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


def test_equal_faults_count_as_one() -> None:
    faults = [required(SPEC), required(SPEC), required(SPEC.child("driver")), required(SPEC)]
    assert [str(fault) for fault in distinct(faults)] == [
        "spec: Required value",
        "spec.driver: Required value",
    ]
