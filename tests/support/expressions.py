"""Random CEL expressions for property tests: syntax trees and texts."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any, Final

from hypothesis import strategies as st

from dralloc.cel import syntax

_NAMES: Final = ("a", "b", "x1", "_y", "Zed", ".root")
_FIELDS: Final = (*_NAMES[:5], "for", "in", "true", "with-dash", "a.b/c d")
_FUNCTIONS: Final = ("f", "size", "lists.range", "optional.of", "g2")
_METHODS: Final = ("f", "size", "contains", "g2", "for")
_BINARY: Final = (
    "_&&_", "_||_", "_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "@in", "_+_", "_-_", "_*_", "_/_", "_%_", "_[_]", "_[?_]",
)  # fmt: skip


def _literals() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.just({"kind": syntax.LiteralKind.NULL, "value": None}),
        st.booleans().map(lambda value: {"kind": syntax.LiteralKind.BOOL, "value": value}),
        st.integers(-(2**63), 2**63 - 1).map(lambda value: {"kind": syntax.LiteralKind.INT, "value": value}),
        st.integers(0, 2**64 - 1).map(lambda value: {"kind": syntax.LiteralKind.UINT, "value": value}),
        st.floats(allow_nan=False, allow_infinity=False).map(
            lambda value: {"kind": syntax.LiteralKind.DOUBLE, "value": value}
        ),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(
            lambda value: {"kind": syntax.LiteralKind.STRING, "value": value}
        ),
        st.binary(max_size=8).map(lambda value: {"kind": syntax.LiteralKind.BYTES, "value": value}),
    )


_LEAF_SHAPES: Final = ("literal", "name")
_CALL_SHAPES: Final = ("optional field", "prefix", "binary", "conditional", "call", "method")
_SHAPES: Final = (*_LEAF_SHAPES, "field", *_CALL_SHAPES, "list", "map", "message")


@st.composite
def expression_trees(draw: st.DrawFn, depth: int = 4) -> syntax.Expression:
    """A syntax tree without macros and without regard to types."""
    return _TreeMaker(draw).node(depth)


class _TreeMaker:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._numbers = count(1)

    def node(self, depth: int) -> syntax.Expression:
        common = self._common()
        match shape := self._one_of(_SHAPES if depth else _LEAF_SHAPES):
            case "literal":
                return syntax.Literal(**common, **self._draw(_literals()))
            case "name":
                return syntax.Identifier(**common, name=self._one_of(_NAMES))
            case "field":
                field, tests = self._one_of(_FIELDS), self._draw(st.booleans())
                return syntax.Select(**common, operand=self.node(depth - 1), field=field, tests_presence=tests)
            case "list":
                elements = self._nodes(depth)
                optional = self._draw(st.frozensets(st.sampled_from(range(len(elements))))) if elements else frozenset()
                return syntax.ListLiteral(**common, elements=elements, optional=optional)
            case "map":
                return syntax.MapLiteral(**common, entries=tuple(self._map_entries(depth)))
            case "message":
                fields, type_name = tuple(self._fields(depth)), self._one_of(("Message", "a.b.Message", ".pkg.M"))
                return syntax.MessageLiteral(**common, type_name=type_name, entries=fields)
            case _:
                return syntax.Call(**common, **self._call(shape, depth))

    def _call(self, shape: str, depth: int) -> dict[str, Any]:
        match shape:
            case "optional field":
                key = syntax.Literal(**self._common(), kind=syntax.LiteralKind.STRING, value=self._one_of(_FIELDS))
                return {"function": "_?._", "arguments": (self.node(depth - 1), key)}
            case "prefix":
                return {"function": self._one_of(("!_", "-_")), "arguments": (self.node(depth - 1),)}
            case "binary":
                return {"function": self._one_of(_BINARY), "arguments": (self.node(depth - 1), self.node(depth - 1))}
            case "conditional":
                return {"function": "_?_:_", "arguments": tuple(self.node(depth - 1) for _ in range(3))}
            case "call":
                return {"function": self._one_of(_FUNCTIONS), "arguments": self._nodes(depth)}
            case _:
                function, target = self._one_of(_METHODS), self.node(depth - 1)
                return {"function": function, "target": target, "arguments": self._nodes(depth)}

    def _map_entries(self, depth: int) -> Iterator[syntax.MapEntry]:
        for key in self._nodes(depth):
            value, optional = self.node(depth - 1), self._draw(st.booleans())
            yield syntax.MapEntry(**self._common(), key=key, value=value, optional=optional)

    def _fields(self, depth: int) -> Iterator[syntax.FieldEntry]:
        for value in self._nodes(depth):
            field, optional = self._one_of(_FIELDS), self._draw(st.booleans())
            yield syntax.FieldEntry(**self._common(), field=field, value=value, optional=optional)

    def _nodes(self, depth: int) -> tuple[syntax.Expression, ...]:
        return tuple(self.node(depth - 1) for _ in range(self._draw(st.integers(0, 2))))

    def _common(self) -> dict[str, Any]:
        return {"id": next(self._numbers), "offset": 0}

    def _one_of(self, texts: Sequence[str]) -> str:
        return self._draw(st.sampled_from(texts))


_D: Final = 'device.attributes["gpu.example.com"]'
_C: Final = 'device.capacity["gpu.example.com"]'

_LEAVES: Final = (
    "1", "-2", "3u", "0x1f", "1.5", "1e3", ".5", "true", "false", "null", '"text"', "'%s %d'", r"r'\d+'", "b'ab'", '"10Gi"', '"1.2.3"',
    '"10.0.0.0/8"', '"2024-01-01T00:00:00Z"', '"1h"', "device", "device.driver", "device.attributes", "device.capacity",
    "device.allowMultipleAllocations", 'device.attributes["gpu.example.com"]', 'device.attributes["gpu.example.com"].model',
    'device.attributes["gpu.example.com"].?model', 'device.attributes[?"none"].?x', 'device.capacity["gpu.example.com"].memory',
    "x", "y", "int", "list", "google.protobuf.Timestamp", "[]", "{}", "[1, 2, 3]", '{"a": 1}', '["a", "b"]',
)  # fmt: skip
_TEMPLATES: Final = (
    "({0})", "!{0}", "-{0}", "{0} && {1}", "{0} || {1}", "{0} == {1}", "{0} != {1}", "{0} < {1}", "{0} >= {1}", "{0} + {1}", "{0} - {1}",
    "{0} * {1}", "{0} / {1}", "{0} % {1}", "{0} in {1}", "{0} ? {1} : {2}", "{0}[{1}]", "{0}[?{1}]", "{0}.a", "{0}.?a", "has({0}.a)",
    "[{0}, {1}]", "[?{0}]", "{{{0}: {1}}}", "size({0})", "{0}.size()", "type({0})", "dyn({0})", "int({0})", "string({0})", "double({0})",
    "uint({0})", "bool({0})", "bytes({0})", "duration({0})", "timestamp({0})", "quantity({0})", "semver({0})", "ip({0})", "cidr({0})",
    "url({0})", "{0}.all(x, {1})", "{0}.exists(x, {1})", "{0}.exists_one(x, {1})", "{0}.map(x, {1})", "{0}.map(x, {1}, {2})",
    "{0}.filter(x, {1})", "{0}.all(x, y, {1})", "{0}.transformList(x, y, {1})", "{0}.transformMap(x, y, {1})",
    "{0}.transformMapEntry(x, y, {1})", "[{0}].sortBy(x, {1})", "cel.bind(x, {0}, {1})", "{0}.optMap(x, {1})", "{0}.optFlatMap(x, {1})",
    "optional.of({0})", "optional.none()", "{0}.orValue({1})", "{0}.or({1})", "{0}.hasValue()", "{0}.value()", "lists.range({0})",
    "sets.contains({0}, {1})", "sets.equivalent({0}, {1})", "{0}.contains({1})", "{0}.startsWith({1})", "{0}.matches({1})", "{0}.find({1})",
    "{0}.split({1})", "{0}.join({1})", "{0}.replace({1}, {2})", "{0}.substring({1})", "{0}.format([{1}, {2}])", "{0}.lowerAscii()",
    "{0}.sort()", "{0}.distinct()", "{0}.flatten()", "{0}.slice({1}, {2})", "{0}.reverse()", "{0}.sum()", "{0}.max()", "{0}.isSorted()",
    "{0}.indexOf({1})", "{0}.includes({1})", "{0}.compareTo({1})", "{0}.isLessThan({1})", "{0}.add({1})", "{0}.isInteger()",
    "{0}.major()", "{0}.getFullYear()", "{0}.getHours()", "{0}.family()", "{0}.containsIP({1})", "{0}.getHost()",
    "format.dns1123Label().validate({0})", "{0}.first()", "{0}.unwrapOpt()", "google.protobuf.Int64Value{{value: {0}}}",
)  # fmt: skip


def expression_texts(depth: int = 3) -> st.SearchStrategy[str]:
    """Texts that parse; few of them type-check."""
    return st.recursive(
        st.sampled_from(_LEAVES),
        lambda inner: st.builds(
            str.format, st.sampled_from(_TEMPLATES), _grouped(inner), _grouped(inner), _grouped(inner)
        ),
        max_leaves=2**depth,
    )


def _grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return inner.map(lambda text: text if text in _LEAVES or text.isalnum() else f"({text})")


# For each type: literals, and operations that return it.
_TYPED_LEAVES: Final = {
    "bool": ("true", "false", "device.allowMultipleAllocations", f"{_D}.bool", f"has({_D}.int)", f"'int' in {_D}"),
    "int": ("0", "7", "-3", "9223372036854775807", f"{_D}.int", f"{_D}.?int.orValue(2)", f"{_D}.none"),
    "double": ("0.5", "-1e3", "2.0"),
    "uint": ("0u", "5u"),
    "string": ("''", "'abc'", "'a,b'", "'é'", "device.driver", f"{_D}.string", f"{_D}.?none.orValue('x')"),
    "list<int>": ("[]", "[1, 2, 3]", "[3, 1, 3]", "lists.range(4)"),
    "list<string>": ("[]", "['b', 'a']", f"{_D}.map(k, k)", "device.attributes.map(d, d)"),
    "map": ("{}", "{'a': 1, 'b': 2}"),
    "quantity": ("quantity('10Gi')", "quantity('1500m')", f"{_C}.memory", f"{_C}['memory']"),
    "semver": ("semver('1.2.3')", "semver('v1.2', true)", f"{_D}.version"),
    "duration": ("duration('90s')", "duration('1h')"),
    "timestamp": ("timestamp('2024-02-29T12:00:00Z')", "timestamp(0)"),
    "optional": ("optional.none()", "optional.of(1)", f"{_D}.?int", "[1][?0]"),
}
_TYPED_TEMPLATES: Final = {
    "bool": (
        ("!({})", "bool"), ("{} && {}", "bool", "bool"), ("{} || {}", "bool", "bool"), ("({} ? {} : {})", "bool", "bool", "bool"),
        ("{} == {}", "int", "int"), ("{} < {}", "int", "int"), ("{} >= {}", "double", "int"), ("{} == {}", "string", "string"),
        ("{} != {}", "list<int>", "list<int>"), ("{} == {}", "map", "map"), ("{} <= {}", "string", "string"), ("{} in {}", "int", "list<int>"),
        ("{} in {}", "string", "map"), ("{}.contains({})", "string", "string"), ("{}.startsWith({})", "string", "string"),
        ("{}.matches('[a-c]+')", "string"), ("{}.all(x, x > {})", "list<int>", "int"), ("{}.exists(x, x == {})", "list<string>", "string"),
        ("{}.exists_one(x, {})", "list<int>", "bool"), ("{}.all(i, v, i < v || {})", "list<int>", "bool"), ("{}.isSorted()", "list<int>"),
        ("{}.isLessThan({})", "quantity", "quantity"), ("{} == {}", "quantity", "quantity"), ("{}.isGreaterThan({})", "semver", "semver"),
        ("{}.isInteger()", "quantity"), ("{}.hasValue()", "optional"), ("{} == {}", "optional", "optional"), ("{} < {}", "duration", "duration"),
        ("{} > {}", "timestamp", "timestamp"), ("sets.contains({}, {})", "list<int>", "list<int>"), ("dyn({}) == dyn({})", "int", "string"),
        ("cel.bind(x, {}, x == x && {})", "string", "bool"), ("type({}) == int", "int"), ("isQuantity({})", "string"),
    ),
    "int": (
        ("{} + {}", "int", "int"), ("({} - {})", "int", "int"), ("{} * {}", "int", "int"), ("({}) / ({})", "int", "int"), ("({}) % ({})", "int", "int"),
        ("-({})", "int"), ("size({})", "string"), ("{}.size()", "list<string>"), ("{}[{}]", "list<int>", "int"), ("{}.sum()", "list<int>"),
        ("{}.max()", "list<int>"), ("{}.indexOf({})", "string", "string"), ("int({})", "double"), ("int({})", "string"), ("{}.compareTo({})", "quantity", "quantity"),
        ("{}.major()", "semver"), ("{}.getHours()", "duration"), ("{}.getFullYear()", "timestamp"), ("{}.orValue({})", "optional", "int"),
        ("{}[{}]", "map", "string"), ("{}.?a.orValue({})", "map", "int"), ("({} ? {} : {})", "bool", "int", "int"), ("{}.asInteger()", "quantity"),
    ),
    "double": (("{} + {}", "double", "double"), ("({}) / ({})", "double", "double"), ("double({})", "int"), ("{}.asApproximateFloat()", "quantity")),
    "uint": (("{} + {}", "uint", "uint"), ("uint({})", "int")),
    "string": (
        ("{} + {}", "string", "string"), ("{}.lowerAscii()", "string"), ("{}.replace({}, {})", "string", "string", "string"), ("{}.substring({})", "string", "int"),
        ("{}.join({})", "list<string>", "string"), ("string({})", "int"), ("string({})", "double"), ("'%s-%d'.format([{}, {}])", "string", "int"),
        ("{}.find('[a-z]')", "string"), ("{}.charAt({})", "string", "int"), ("{}.trim()", "string"), ("strings.quote({})", "string"), ("string({})", "timestamp"),
    ),
    "list<int>": (
        ("[{}, {}]", "int", "int"), ("{} + {}", "list<int>", "list<int>"), ("{}.map(x, x + {})", "list<int>", "int"), ("{}.filter(x, x > {})", "list<int>", "int"),
        ("{}.map(s, s.size())", "list<string>"), ("{}.sort()", "list<int>"), ("{}.reverse()", "list<int>"), ("{}.distinct()", "list<int>"),
        ("[{}, {}].flatten()", "list<int>", "list<int>"), ("{}.slice(0, {})", "list<int>", "int"), ("{}.sortBy(x, -x)", "list<int>"),
        ("{}.transformList(i, v, i * v)", "list<int>"), ("[?{}]", "optional"),
    ),
    "list<string>": (("[{}, {}]", "string", "string"), ("{}.split({})", "string", "string"), ("{}.findAll('[a-z]')", "string"), ("{}.map(k, k)", "map"), ("{}.sort()", "list<string>")),
    "map": (("{{{}: {}}}", "string", "int"), ("{}.transformMap(k, v, v + {})", "map", "int"), ("{}.transformMapEntry(i, v, {{v: i}})", "list<string>")),
    "quantity": (("{}.add({})", "quantity", "quantity"), ("{}.sub({})", "quantity", "int"), ("quantity(string({}))", "int")),
    "semver": (("semver(string({}) + '.0.0')", "int"),),
    "duration": (("{} + {}", "duration", "duration"), ("{} - {}", "timestamp", "timestamp")),
    "timestamp": (("{} + {}", "timestamp", "duration"), ("timestamp({})", "int")),
    "optional": (("optional.of({})", "int"), ("{}.or({})", "optional", "optional"), ("{}.optMap(x, x + {})", "optional", "int"), ("{}[?{}]", "list<int>", "int"), ("{}.first()", "list<int>")),
}  # fmt: skip


@cache
def typed_texts(kind: str = "bool", depth: int = 3) -> st.SearchStrategy[str]:
    """Texts that mostly type-check; some fail at run time."""
    leaves = st.sampled_from(_TYPED_LEAVES[kind])
    if depth == 0:
        return leaves
    made = [
        st.builds(template.format, *(_grouped(typed_texts(part, depth - 1)) for part in parts))
        for template, *parts in _TYPED_TEMPLATES[kind]
    ]
    return st.one_of(leaves, *made)


def scrambled_texts() -> st.SearchStrategy[str]:
    """Texts that are almost expressions, and arbitrary texts."""
    pieces = st.sampled_from(
        [
            *_LEAVES,
            *"()[]{}.,?:!-+*/%<>=&|`'\"\\#@ \n\t",
            "&&",
            "||",
            "==",
            "in",
            "for",
            "//",
            '"""',
            "\u00e9",
            "\U0001f600",
        ]
    )
    return st.one_of(
        st.lists(pieces, max_size=12).map("".join),
        st.text(st.sampled_from(string.printable), max_size=40),
        st.text(max_size=20),
    )
