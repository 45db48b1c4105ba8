"""Quantities: how a text or JSON value parses, and the results of sums and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralloc.conformance.vector_family import LineFamily, VectorOptions
from dralloc.kube.codec import DecodeError, decode
from dralloc.kube.wire import Wire
from dralloc.primitives.quantity import Quantity, QuantityError


class _Holder(Wire):
    """A quantity from JSON; None for null."""

    quantity: Quantity | None = None


def _identify(line: Mapping[str, Any]) -> str:
    operands = [line[name] for name in ("text", "raw", "a", "b") if name in line]
    return " ".join([line["op"], *map(repr, operands)])


def _compare_line(line: Mapping[str, Any], _options: VectorOptions) -> Iterator[str]:
    expected = _expected(line)
    got = _answer(line)
    for name in expected:
        if got.get(name) != expected[name]:
            yield f"{name}: expected {expected[name]!r}, got {got.get(name)!r}"


def _expected(line: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the compared part of the recorded answer."""
    if line["error"]:
        return {"error": True}
    counted = ("cmp", "equal") if line["op"] == "cmp" else ("string", "value", "sign", "format")
    answer: dict[str, Any] = {"error": False} | {name: line[name] for name in counted}
    return answer | {name: line[name] for name in ("jsonString", "again") if name in line}


def _answer(line: Mapping[str, Any]) -> dict[str, Any]:
    try:
        match line["op"]:
            case "parse":
                return _described(Quantity.parse(line["text"]))
            case "json":
                return _described(decode(b'{"quantity":%s}' % line["raw"].encode(), _Holder).quantity)
            case "add":
                return _described(Quantity.parse(line["a"]) + Quantity.parse(line["b"]))
            case "sub":
                return _described(Quantity.parse(line["a"]) - Quantity.parse(line["b"]))
            case "cmp":
                left, right = Quantity.parse(line["a"]), Quantity.parse(line["b"])
                return {"error": False, "cmp": (left > right) - (left < right), "equal": left == right}
            case unknown:
                raise KeyError(f"unknown operation {unknown!r}")
    except (QuantityError, DecodeError):
        return {"error": True}


def _described(quantity: Quantity | None) -> dict[str, Any]:
    if quantity is None:
        return _described(Quantity.ZERO) | {"format": ""}
    text = str(quantity)
    return {
        "error": False,
        "string": text,
        "jsonString": text,
        "value": quantity.int64_value,
        "sign": quantity.sign,
        "format": quantity.format.value,
        "again": str(Quantity.parse(text)),
    }


FAMILY: Final = LineFamily(identify=_identify, compare=_compare_line)
