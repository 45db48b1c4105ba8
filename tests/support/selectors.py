"""Devices as selectors see them, random devices, and random selectors that type-check."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hypothesis import strategies as st

from dralloc.cel.device import DeviceView
from dralloc.cel.environment import stored_environment
from dralloc.cel.evaluator import Evaluator
from dralloc.cel.parser import parse
from dralloc.cel.type_checker import check_types
from dralloc.cel.values import Value
from dralloc.kube.resource_v1 import DeviceAttribute
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.semver import Semver

DRIVER: Final = "gpu.example.com"

Plain = bool | int | str | Semver | list[Any]

GPU: Final[Mapping[str, Plain]] = {
    "model": "a100",
    "index": 4,
    "ecc": True,
    "driverVersion": Semver.parse("560.35.3"),
    "numa.example.net/node": 1,
}
GPU_CAPACITY: Final[Mapping[str, str]] = {"memory": "40Gi", "cores": "1500m"}


def device_view(
    attributes: Mapping[str, Plain] = GPU,
    capacity: Mapping[str, str] = GPU_CAPACITY,
    *,
    driver: str = DRIVER,
    shareable: bool | None = None,
) -> DeviceView:
    """A device with attributes as plain values."""
    return DeviceView.build(
        driver,
        {name: attribute(value) for name, value in attributes.items()},
        {name: Quantity.parse(amount) for name, amount in capacity.items()},
        shareable,
    )


def attribute(value: Plain) -> DeviceAttribute:
    """The attribute that holds a value."""
    match value:
        case Semver():
            return DeviceAttribute(version=str(value))
        case bool():
            return DeviceAttribute(bool=value)
        case int():
            return DeviceAttribute(int=value)
        case str():
            return DeviceAttribute(string=value)
        case [Semver(), *_]:
            return DeviceAttribute(versions=tuple(str(element) for element in value))
        case [bool(), *_]:
            return DeviceAttribute(bools=tuple(value))
        case [int(), *_]:
            return DeviceAttribute(ints=tuple(value))
        case _:
            return DeviceAttribute(strings=tuple(value))


def evaluate(expression: str, device: DeviceView | None = None) -> Value:
    """The value of an expression of any type."""
    typed = check_types(parse(expression), stored_environment())
    return Evaluator(typed).evaluate((device or device_view()).as_map)


# --- Random devices ------------------------------------------------------------------------------------------

_NAMES: Final = ("model", "index", "ecc", "driverVersion", "tags", "numa.example.net/node", f"{DRIVER}/profile")


def device_views() -> st.SearchStrategy[DeviceView]:
    """Devices with the attribute names of `typed_selectors`, but not always the types."""
    texts = st.sampled_from(["", "a", "a100", "h100", "é", "1"])
    numbers = st.sampled_from([0, 1, 2, -1, 2**63 - 1, -(2**63)])
    versions = st.sampled_from(["1.0.0", "1.2.3", "2.0.0-rc.1", "1.0.0+x"]).map(Semver.parse)
    values = st.one_of(texts, numbers, st.booleans(), versions, st.lists(texts, min_size=1, max_size=3))
    amounts = st.sampled_from(["0", "1", "1500m", "10Gi", "9223372036854775808"])
    return st.builds(
        device_view,
        st.dictionaries(st.sampled_from(_NAMES), values, max_size=6),
        st.dictionaries(st.sampled_from(["memory", "cores"]), amounts),
        driver=st.sampled_from([DRIVER, "other.example.org"]),
        shareable=st.sampled_from([None, True, False]),
    )


# --- Random selectors ----------------------------------------------------------------------------------------

# By type: what gives it. `{type}` stands for anything of that type, so that all of these have the types they need.
_FORMS: Final[Mapping[str, Sequence[str]]] = {
    "bool": (
        "true", "false", "device.allowMultipleAllocations", 'device.driver == "gpu.example.com"', "has({domain}.model)",
        '"model" in {domain}', '{text} in device.attributes', "({bool}) && ({bool})", "({bool}) || ({bool})", "!({bool})",
        "({bool}) ? ({bool}) : ({bool})", "({bool}) == ({bool})", "({any}) && ({bool})", "({bool}) || ({any})", "({any}) ? true : ({bool})",
        "({int}) < ({int})", "({int}) >= ({int})", "({int}) == ({int})", "({int}) != ({int})", "({double}) < ({double})", "({double}) == ({double})",
        "({uint}) <= ({uint})", "({int}) < ({double})", "({text}) == ({text})", "({text}) != ({any})", "({text}) < ({text})",
        "({any}) == ({any})", "({any}) != ({any})", "({any}) == ({text})", "({any}) == 1", "({any}) == 0", "({any}) == true", "({any}) != 1",
        '({any}) == "a100"', '({any}) != "a100"', '"a100" == ({any})', "({any}) < ({int})", "({any}) >= 1", '({any}) < "b"', "({any}) < ({any})",
        '({text}) in ["a", "a100"]', '({any}) in ["a", "a100"]', "({any}) in [0, 1]", "({any}) in [true]", "({any}) in [1.0, 2.5]", "({any}) in ({list})",
        "({int}) in [0, 1, 7]", "({text}) in {domain}", "({text}).startsWith({text})", "({any}).startsWith({text})", "({text}).endsWith({text})",
        "({any}).contains({text})", '({text}).matches("^a[0-9]+")', '({any}).matches("a")', "({quantity}).compareTo({quantity}) >= 0",
        "({quantity}).compareTo({quantity}) == 0", "({quantity}).isGreaterThan({quantity})", "({quantity}) == ({quantity})",
        "({quantity}) != ({quantity})", "({quantity}).isInteger()", "({any}).isLessThan({version})", "({any}) == ({version})",
        "({version}) == ({any})", "({any}).compareTo({version}) < 0", "({version}) == ({version})", "({optional}).hasValue()",
        "({optional}) == optional.none()", "({optional}) == ({optional})", "{domain}.exists(k, k == {text})", "{domain}.all(k, v, v == {int} || k < {text})",
        "({list}).all(e, e != ({any}))", "({list}).exists(e, e == {int})", "({list}).exists_one(e, e == ({any}))", "({texts}).all(s, s.size() > {int})",
        "({list}) == ({list})", "{map} == {map}", "{domain} == {map}", "device.attributes == device.capacity", "type({any}) == int",
        "cel.bind(b, ({any}), b == {int} || b == {text})", "cel.bind(m, device.attributes, m[{text}].size() == {int})", "isQuantity({text})",
        "isSemver({text})", 'ip("10.0.0.1").family() == {int}', "sets.intersects({list}, {list})", "({any}).includes({any})", "({texts}).isSorted()",
    ),
    "int": (
        "0", "1", "-1", "4", "9223372036854775807", "size({domain})", "size(device.attributes)", "({int}) + ({int})", "({int}) - ({int})",
        "({int}) * ({int})", "({int}) / ({int})", "({int}) % ({int})", "-({int})", "({text}).size()", "size({any})", "({any}) + 1", "int({any})",
        "({quantity}).asInteger()", "({version}).major()", "({any}).minor()", "({text}).indexOf({text})", "({ints}).sum()", "({list}).size()",
        "({bool}) ? ({int}) : ({int})", "({any}) % 2", "({ints})[{int}]", "{map}.size()", "({quantity}).compareTo({quantity})",
    ),
    "double": ("0.0", "1.5", "-0.0", "1e308", "double({int})", "({double}) + ({double})", "({double}) / ({double})", "({quantity}).asApproximateFloat()"),
    "uint": ("0u", "1u", "18446744073709551615u", "({uint}) + ({uint})", "({uint}) - ({uint})", "uint({int})"),
    "text": (
        '""', '"a"', '"a100"', "\"it's\"", '"é\\n"', "device.driver", "({text}) + ({text})", "string({int})", "string({any})", "({any}) + \"x\"",
        "({text}).lowerAscii()", "({text}).substring({int})", "({text}).replace({text}, {text})", "({texts}).join(\",\")", '"%s-%d".format([{any}, {int}])',
        "({bool}) ? ({text}) : ({text})", "({texts})[0]", "({text}).find(\"[a-z]+\")",
    ),
    "any": (
        "{domain}.model", "{domain}.index", "{domain}.ecc", "{domain}.driverVersion", "{domain}.tags", "{domain}.missing", '{domain}["profile"]',
        'device.attributes["numa.example.net"].node', "device.attributes[device.driver][{text}]", "({optional}).orValue({int})", "({optional}).orValue({text})",
        "({optional}).value()", "({bool}) ? ({any}) : ({any})", "({list})[0]", "dyn({int})", "dyn({text})", "dyn(null)", "({any}).deep",
    ),
    "optional": (
        "{domain}.?model", '{domain}[?"index"]', "device.attributes[?{text}].?index", "optional.of({any})", "optional.none()",
        "({optional}).or({optional})", "({optional}).optMap(o, o == {int})", "optional.ofNonZeroValue({any})", "({list}).first()",
    ),
    "quantity": (
        'device.capacity["gpu.example.com"].memory', "device.capacity[device.driver].cores", 'quantity("10Gi")', 'quantity("0.5")',
        "({quantity}).add({quantity})", "({quantity}).sub({int})", 'device.capacity["gpu.example.com"].?memory.orValue({quantity})',
        "({bool}) ? ({quantity}) : ({quantity})", "quantity({text})",
    ),
    "version": ('semver("1.2.3")', 'semver("1.0.0+meta")', "semver({text})", "({bool}) ? ({version}) : ({version})"),
    "domain": ('device.attributes["gpu.example.com"]', "device.attributes[device.driver]", 'device.attributes["none"]', "device.attributes.x"),
    "map": ('{ "a": dyn(1) }', '{ "model": dyn({any}) }', '{ "a": dyn(1), "b": dyn({int}) }', "{domain}"),
    "list": (
        "[dyn(1)]", "[dyn(1), dyn(1.0), dyn({any})]", "[{any}]", "[{any}, {any}]", "({list}) + ({list})", "({list}).map(x, x)", "({list}).filter(x, x == ({any}))",
        "{domain}.map(k, {domain}[k])", "({list}).distinct()", "({list}).reverse()",
    ),
    "ints": ("[1, 2, 3]", "lists.range(3)", "[{int}]", "({ints}).map(i, i * 2)", "({ints}).filter(i, i > {int})", "({ints}).sort()"),
    "texts": ('["b", "a"]', "[{text}]", '({text}).split(",")', "{domain}.map(k, k)", "({texts}).sort()", "({text}).findAll(\"[a-z]\")"),
}  # fmt: skip
_HOLE: Final = re.compile(r"\{(\w+)\}")


_SHAPES: Final = {kind: st.sampled_from(forms) for kind, forms in _FORMS.items()}
_LEAVES: Final = {
    kind: st.sampled_from([form for form in forms if not _HOLE.search(form)]) for kind, forms in _FORMS.items()
}


@st.composite
def typed_selectors(draw: st.DrawFn, depth: int = 4) -> str:
    """Texts that almost always compile."""
    return _fill(draw, "bool", depth)


def _fill(draw: st.DrawFn, kind: str, depth: int) -> str:
    form = draw(_SHAPES[kind] if depth > 0 else _LEAVES[kind])
    return _HOLE.sub(lambda hole: _fill(draw, hole[1], depth - 1), form)
