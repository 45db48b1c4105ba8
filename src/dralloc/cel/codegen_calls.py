"""Calls with a faster form than a library call: comparisons, above all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from dralloc.cel.codegen_source import SourceFragment, SourceWriter, dispatcher, fail_over
from dralloc.cel.library.function_table import FUNCTIONS
from dralloc.cel.library.regex import compile_pattern
from dralloc.cel.syntax import Call
from dralloc.cel.types import TypeKind
from dralloc.cel.values import INT_MAX, INT_MIN, MISSING
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.semver import Semver

# Writes a call, or returns None if the library call is best.
Emitter = Callable[[SourceWriter, Call, Sequence[SourceFragment]], SourceFragment | None]

TEXTS_REMEMBERED: Final = 256

# Kinds whose values Python compares as CEL does, if both sides are of the same kind. NaN has no order.
_EQUAL_KINDS: Final = frozenset(
    {TypeKind.STRING, TypeKind.INT, TypeKind.BOOL, TypeKind.UINT, TypeKind.DOUBLE, TypeKind.BYTES}
)
_ORDERED_KINDS: Final = frozenset({TypeKind.STRING, TypeKind.INT, TypeKind.UINT, TypeKind.BYTES})
_CLASSES: Final[dict[TypeKind, type]] = {TypeKind.STRING: str, TypeKind.INT: int, TypeKind.BOOL: bool}
_DYNAMIC: Final = frozenset({TypeKind.DYN, TypeKind.ANY})


def is_text_map(source: SourceFragment) -> bool:
    """True for a map with string keys, which a Python dict holds unchanged."""
    return source.kind is TypeKind.MAP and source.type.parameters[0].kind is TypeKind.STRING


def _guarded(writer: SourceWriter, source: SourceFragment, wanted: type) -> str:
    """Returns the text of a value of the class; it fails for any other value."""
    temporary = writer.temporary()
    test = f"({temporary} := {writer.value_text(source)}).__class__ is {writer.name(wanted)}"
    return f"({temporary} if {test} else {writer.name(fail_over)}())"


# --- Comparison ----------------------------------------------------------------------------------------------


def _comparison(sign: str, kinds: frozenset[TypeKind]) -> Emitter:
    def emit(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
        left, right = arguments
        if left.comparison is not None and right.constant.__class__ is int and right.constant == 0:
            # `a.compareTo(b) >= 0` is `a >= b`.
            mine, theirs = left.comparison
            return writer.expression(node, f"({mine} {sign} {theirs})", left)
        if left.kind is right.kind and left.kind in kinds:
            return writer.expression(node, f"({left.text} {sign} {right.text})", left, right)
        if left.kind in _DYNAMIC and right.constant is not MISSING and right.kind in kinds and right.kind in _CLASSES:
            return _compare_dynamic(writer, node, sign, left, right)
        if sign in ("==", "!=") and left.constant.__class__ is str and right.kind in _DYNAMIC:
            # With a string on the left, anything else on the right is unequal.
            temporary = writer.temporary()
            is_text = f"({temporary} := {right.text}).__class__ is {writer.name(str)}"
            text = f"({left.text} {sign} {temporary} if {is_text} else {sign == '!='})"
            return writer.expression(node, text, left, right, is_assigning=True)
        return None

    return emit


def _compare_dynamic(
    writer: SourceWriter, node: Call, sign: str, left: SourceFragment, right: SourceFragment
) -> SourceFragment:
    temporary = writer.temporary()
    is_alike = f"({temporary} := {writer.value_text(left)}).__class__ is {writer.name(_CLASSES[right.kind])}"
    otherwise = f"{writer.name(dispatcher(FUNCTIONS[f'_{sign}_']))}({temporary}, {right.text})"
    text = f"({temporary} {sign} {right.text} if {is_alike} else {otherwise})"
    return writer.expression(node, text, left, right, is_assigning=True)


def _equality_of_quantities(emit: Emitter, sign: str) -> Emitter:
    """A capacity or a constant on the right is not a derived quantity, so quantities can be compared by their number."""

    def emit_all(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
        left, right = arguments
        if _is_quantity(left) and right.constant.__class__ is Quantity:
            return writer.expression(node, f"({left.text}.nanos {sign} {right.constant.nanos!r})", left, right)
        return emit(writer, node, arguments)

    return emit_all


def _is_quantity(source: SourceFragment) -> bool:
    return source.kind is TypeKind.OBJECT and source.type.name == "kubernetes.Quantity"


def _comparable(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> tuple[str, str] | None:
    """Returns the texts of two Python values that compare as the operands do."""
    overloads = writer.overloads_of(node)
    if len(overloads) != 1:
        return None
    if overloads[0].startswith("quantity_"):
        return _operand(writer, arguments[0], Quantity, "nanos"), _operand(writer, arguments[1], Quantity, "nanos")
    if overloads[0].startswith("semver_"):
        return _operand(writer, arguments[0], Semver, "precedence"), _operand(
            writer, arguments[1], Semver, "precedence"
        )
    return None


def _operand(writer: SourceWriter, source: SourceFragment, wanted: type, member: str) -> str:
    if source.constant.__class__ is wanted:
        value = getattr(source.constant, member)
        return repr(value) if isinstance(value, int) else writer.name(value)
    if source.kind is TypeKind.OBJECT:
        return f"{source.text}.{member}"
    return f"{_guarded(writer, source, wanted)}.{member}"


def _order_method(sign: str) -> Emitter:
    def emit(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
        comparison = _comparable(writer, node, arguments)
        if comparison is None:
            return None
        text = f"({comparison[0]} {sign} {comparison[1]})"
        return writer.expression(node, text, *arguments, is_assigning=_needs_temporary(arguments))

    return emit


def _compare_to(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
    comparison = _comparable(writer, node, arguments)
    if comparison is None:
        return None
    made = writer.call(node, FUNCTIONS["compareTo"], arguments)
    made.comparison = comparison
    made.is_assigning = made.is_assigning or _needs_temporary(arguments)
    return made


def _needs_temporary(arguments: Sequence[SourceFragment]) -> bool:
    return any(argument.kind is not TypeKind.OBJECT for argument in arguments)


# --- Others --------------------------------------------------------------------------------------------------


def _not(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
    (operand,) = arguments
    is_assigning = operand.kind is not TypeKind.BOOL
    return writer.expression(node, f"(not {writer.bool_text(operand)})", operand, is_assigning=is_assigning)


def _in(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
    key, container = arguments
    if is_text_map(container) and key.kind is TypeKind.STRING:
        return writer.expression(node, f"({key.text} in {container.text})", key, container)
    return None


_SIZED: Final = frozenset({TypeKind.STRING, TypeKind.BYTES, TypeKind.LIST, TypeKind.MAP})


def _size(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
    (operand,) = arguments
    if operand.kind not in _SIZED:
        return None
    return writer.expression(node, f"{writer.name(len)}({operand.text})", operand)


def _text_method(method: str) -> Emitter:
    def emit(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
        text, part = arguments
        if part.kind is not TypeKind.STRING or text.kind not in (TypeKind.STRING, *_DYNAMIC):
            return None
        receiver = text.text if text.kind is TypeKind.STRING else _guarded(writer, text, str)
        made = f"({part.text} in {receiver})" if method == "in" else f"{receiver}.{method}({part.text})"
        return writer.expression(node, made, *arguments, is_assigning=text.kind is not TypeKind.STRING)

    return emit


def _matches(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
    text, pattern = arguments
    if pattern.constant.__class__ is not str or text.kind not in (TypeKind.STRING, *_DYNAMIC):
        return None
    matcher = writer.name(_remembering_matcher(pattern.constant))
    operand = text.text if text.kind is TypeKind.STRING else _guarded(writer, text, str)
    return writer.expression(node, f"{matcher}({operand})", text, is_assigning=text.kind is not TypeKind.STRING)


def _remembering_matcher(pattern: str) -> Callable[[str], bool]:
    """Returns a matcher with a cache: devices repeat the same few texts, and calling RE2 from Python is slow."""
    search = compile_pattern(pattern).search

    @lru_cache(maxsize=TEXTS_REMEMBERED)
    def matches(text: str) -> bool:
        return search(text) is not None

    return matches


def _arithmetic(sign: str) -> Emitter:
    def emit(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
        left, right = arguments
        if left.kind is TypeKind.STRING and right.kind is TypeKind.STRING and sign == "+":
            return writer.expression(node, f"({left.text} + {right.text})", left, right)
        if left.kind is not TypeKind.INT or right.kind is not TypeKind.INT:
            return None
        temporary = writer.temporary()
        test = f"{INT_MIN} <= ({temporary} := {left.text} {sign} {right.text}) <= {INT_MAX}"
        text = f"({temporary} if {test} else {writer.name(fail_over)}())"
        return writer.expression(node, text, left, right, is_assigning=True)

    return emit


def _of_entry(template: str) -> Emitter:
    """A call on an optional entry of a map."""

    def emit(writer: SourceWriter, node: Call, arguments: Sequence[SourceFragment]) -> SourceFragment | None:
        (optional,) = arguments
        if optional.entry is None:
            return None
        mapping, key = optional.entry
        return writer.expression(node, template.format(mapping=mapping, key=key), optional)

    return emit


CALLS: Final[dict[str, Emitter]] = {
    "_==_": _equality_of_quantities(_comparison("==", _EQUAL_KINDS), "=="),
    "_!=_": _equality_of_quantities(_comparison("!=", _EQUAL_KINDS), "!="),
    "_<_": _comparison("<", _ORDERED_KINDS),
    "_<=_": _comparison("<=", _ORDERED_KINDS),
    "_>_": _comparison(">", _ORDERED_KINDS),
    "_>=_": _comparison(">=", _ORDERED_KINDS),
    "!_": _not,
    "@in": _in,
    "_+_": _arithmetic("+"),
    "_-_": _arithmetic("-"),
    "_*_": _arithmetic("*"),
    "size": _size,
    "startsWith": _text_method("startswith"),
    "endsWith": _text_method("endswith"),
    "contains": _text_method("in"),
    "matches": _matches,
    "isGreaterThan": _order_method(">"),
    "isLessThan": _order_method("<"),
    "compareTo": _compare_to,
    "hasValue": _of_entry("({key} in {mapping})"),
    "value": _of_entry("{mapping}[{key}]"),
}
