"""The fast path: compiles a selector to one Python function.

The function handles the usual case and ignores errors and costs. In every unusual case (a missing key, an unexpected
type, a number that is too large) it raises, and the evaluator decides. So it need not be complete, but what it returns
must be correct.

Selectors are untrusted input. The source only contains names generated here and literals printed by `repr`; every other
value is passed to the function as an object.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

from dralloc.cel.closure_runtime import elements_of, pairs_of
from dralloc.cel.code_planner import DEVICE_SLOT, CodePlanner, Loop, Qualifier
from dralloc.cel.codegen_calls import CALLS, is_text_map
from dralloc.cel.codegen_source import SourceFragment, SourceWriter, TooComplex
from dralloc.cel.device import DeviceView
from dralloc.cel.library.functions import Function
from dralloc.cel.library.maps import insert, insert_all
from dralloc.cel.library.messages import build_message
from dralloc.cel.meter import Meter
from dralloc.cel.syntax import Call, Expression, ListLiteral, MapLiteral, MessageLiteral
from dralloc.cel.type_checker import TypedExpression
from dralloc.cel.types import TypeKind
from dralloc.cel.values import (
    MISSING,
    DomainMap,
    Map,
    Value,
    access_optionally,
    find_value,
    get_value,
    index_key,
    map_key,
)

Matcher = Callable[[DeviceView], bool]

# Reading the attributes makes a selector fail on a device with a malformed one, even if it reads none.
_TEMPLATE: Final = """\
def matches(device):
    try:
        device.attributes
        return {expression}
    except Exception:
        return decide(device)
"""


def generate(typed: TypedExpression, decide: Matcher, *, is_cheap: bool) -> Matcher | None:
    """Returns a function that matches devices; it calls `decide` in all doubtful cases.

    None if the expression is too complex. An expression `is_cheap` if it cannot approach the cost limit; otherwise its
    form must prove that.
    """
    writer = SourceWriter(typed, is_cheap=is_cheap)
    try:
        code = compile(_TEMPLATE.format(expression=write_expression(typed, writer)), "<selector>", "exec")
    except (TooComplex, SyntaxError, RecursionError, MemoryError, ValueError):
        return None
    scope: dict[str, Any] = {**writer.names, "__builtins__": {"Exception": Exception}, "decide": decide, "bool": bool}
    exec(code, scope)
    matcher: Matcher = scope["matches"]
    return matcher


def write_expression(typed: TypedExpression, writer: SourceWriter) -> str:
    """Returns the expression in Python; `writer.names` holds the values of its names. Raises `TooComplex`."""
    return writer.bool_text(CodePlanner(typed, _SourceBuilder(writer)).plan())


_DEVICE_FIELDS: Final = {
    "driver": "driver",
    "attributes": "attributes",
    "capacity": "capacity",
    "allowMultipleAllocations": "allow_multiple_allocations",
}


class _SourceBuilder:
    """Writes expressions. `code_builder.CodeBuilder` describes each method."""

    def __init__(self, writer: SourceWriter) -> None:
        self._writer = writer

    # Values.

    def constant(self, node: Expression, value: Value) -> SourceFragment:
        return self._writer.constant(node, value)

    def variable(self, node: Expression, slot: int, *, is_charged: bool) -> SourceFragment:  # noqa: ARG002
        if slot == DEVICE_SLOT:
            return self._writer.expression(node, "device", is_device=True)
        return self._writer.expression(node, f"v{slot}")

    def access(
        self,
        node: Expression,
        base: SourceFragment,
        qualifiers: Sequence[Qualifier[SourceFragment]],
        *,
        is_relative: bool,  # noqa: ARG002
    ) -> SourceFragment:
        plain_count = next((index for index, step in enumerate(qualifiers) if step.is_optional), len(qualifiers))
        if base.is_optional:
            plain_count = 0
        current = self._follow(base, qualifiers[:plain_count])
        rest = qualifiers[plain_count:]
        if not rest:
            return current
        if len(rest) == 1 and is_text_map(current) and not current.holds_maps and rest[0].key.__class__ is str:
            return self._optional_entry(node, current, rest[0].key)
        writer = self._writer
        keys = [self._key(step) for step in rest]
        listed = "".join(f"{key.text}, " for key in keys)
        access = writer.name(access_optionally)
        return writer.expression(node, f"{access}({writer.value_text(current)}, ({listed}))", current, *keys)

    def _optional_entry(self, node: Expression, current: SourceFragment, key: str) -> SourceFragment:
        """`map.?key`, of which usually only the value or a default is needed, without the optional."""
        access = self._writer.name(access_optionally)
        made = self._writer.expression(node, f"{access}({current.text}, ({key!r},))", current)
        made.entry = (current.text, repr(key))
        return made

    def _follow(self, base: SourceFragment, qualifiers: Sequence[Qualifier[SourceFragment]]) -> SourceFragment:
        current = base
        for step in qualifiers:
            key = self._key(step)
            if current.is_device and step.key in _DEVICE_FIELDS:
                text = f"device.{_DEVICE_FIELDS[step.key]}"
            elif is_text_map(current) and key.kind is TypeKind.STRING:
                text = f"{current.text}[{key.text}]"
            else:
                text = f"{self._writer.name(get_value)}({self._writer.value_text(current)}, {self._checked_key(step, key)})"
            current = self._writer.expression(step.node, text, current, key)
        return current

    def _key(self, step: Qualifier[SourceFragment]) -> SourceFragment:
        return self._writer.key(step.key) if step.code is None else step.code

    def _checked_key(self, step: Qualifier[SourceFragment], key: SourceFragment) -> str:
        return key.text if step.code is None else f"{self._writer.name(index_key)}({key.text})"

    def presence(
        self,
        node: Expression,
        base: SourceFragment,
        qualifiers: Sequence[Qualifier[SourceFragment]],
        *,
        is_relative: bool,  # noqa: ARG002
    ) -> SourceFragment:
        writer = self._writer
        if base.is_optional or any(step.is_optional for step in qualifiers):
            raise TooComplex("has() on an optional value")
        container, last = self._follow(base, qualifiers[:-1]), self._key(qualifiers[-1])
        if is_text_map(container) and not container.holds_maps:
            return writer.expression(node, f"({last.text} in {container.text})", container)
        text = f"{writer.name(_has)}({writer.value_text(container)}, {last.text})"
        return writer.expression(node, text, container)

    def make_list(self, node: ListLiteral, elements: Sequence[SourceFragment]) -> SourceFragment:
        if node.optional:
            raise TooComplex("optional elements")
        listed = ", ".join(self._writer.value_text(element) for element in elements)
        return self._writer.expression(node, f"[{listed}]", *elements)

    def make_map(self, node: MapLiteral, entries: Sequence[tuple[SourceFragment, SourceFragment]]) -> SourceFragment:
        if any(entry.optional for entry in node.entries):
            raise TooComplex("optional entries")
        name = self._writer.name(map_key)
        listed = ", ".join(f"{name}({key.text}): {self._writer.value_text(value)}" for key, value in entries)
        return self._writer.expression(node, f"{{{listed}}}", *(part for entry in entries for part in entry))

    def make_message(self, node: MessageLiteral, values: Sequence[SourceFragment]) -> SourceFragment:
        if any(entry.optional for entry in node.entries):
            raise TooComplex("optional fields")
        writer = self._writer
        fields = ", ".join(
            f"{entry.field!r}: {writer.value_text(value)}" for entry, value in zip(node.entries, values, strict=True)
        )
        type_name = node.type_name.removeprefix(".")
        return writer.expression(node, f"{writer.name(build_message)}({type_name!r}, {{{fields}}})", *values)

    # Calls and operators.

    def call(self, node: Call, function: Function, arguments: Sequence[SourceFragment]) -> SourceFragment:
        self._writer.allow_call(node)
        special = CALLS.get(node.function)
        made = None if special is None else special(self._writer, node, arguments)
        return self._writer.call(node, function, arguments) if made is None else made

    def membership(self, node: Expression, operand: SourceFragment, members: frozenset[Hashable]) -> SourceFragment:
        writer = self._writer
        name = writer.name(members)
        if operand.kind in (TypeKind.STRING, TypeKind.INT):
            return writer.expression(node, f"({operand.text} in {name})", operand)
        temporary = writer.temporary()
        plain = (
            f"{temporary} in {name} if ({temporary} := {writer.value_text(operand)}).__class__ is {writer.name(str)}"
        )
        text = f"({plain} else {writer.name(_is_member)}({temporary}, {name}))"
        return writer.expression(node, text, operand, is_assigning=True)

    def alternative(
        self, node: Call, optional: SourceFragment, otherwise: SourceFragment, *, is_unwrapped: bool
    ) -> SourceFragment:
        writer = self._writer
        if is_unwrapped and optional.entry is not None and otherwise.constant is not MISSING:
            mapping, key = optional.entry
            return writer.expression(node, f"{mapping}.get({key}, {otherwise.text})", optional)
        temporary = writer.temporary()
        chosen = f"{temporary}.value" if is_unwrapped else temporary
        text = f"({chosen} if ({temporary} := {optional.text}).is_present else {writer.value_text(otherwise)})"
        return writer.expression(node, text, optional, otherwise, is_assigning=True)

    def conditional(
        self, node: Expression, condition: SourceFragment, then: SourceFragment, otherwise: SourceFragment
    ) -> SourceFragment:
        writer = self._writer
        branches = f"{writer.value_text(then)} if {writer.bool_text(condition)} else {writer.value_text(otherwise)}"
        is_assigning = condition.kind is not TypeKind.BOOL
        return writer.expression(node, f"({branches})", condition, then, otherwise, is_assigning=is_assigning)

    def logical(self, node: Expression, terms: Sequence[SourceFragment], *, is_conjunction: bool) -> SourceFragment:
        writer = self._writer
        operator = " and " if is_conjunction else " or "
        text = operator.join(writer.bool_text(term) for term in terms)
        is_assigning = any(term.kind is not TypeKind.BOOL for term in terms)
        return writer.expression(node, f"({text})", *terms, is_assigning=is_assigning)

    # Macros.

    def bind(self, node: Expression, slot: int, value: SourceFragment, body: SourceFragment) -> SourceFragment:
        writer = self._writer
        bound = writer.value_text(value)
        if value.kind in (TypeKind.MAP, TypeKind.DYN):
            bound = f"{writer.name(_bound)}({bound})"
        text = f"((v{slot} := {bound}), {writer.value_text(body)})[1]"
        return writer.expression(node, text, value, body, is_assigning=True)

    def quantifier(
        self, node: Expression, loop: Loop[SourceFragment], predicate: SourceFragment, *, is_universal: bool
    ) -> SourceFragment:
        name = self._writer.name(all if is_universal else any)
        text = f"{name}({self._writer.bool_text(predicate)} {self._loop_text(loop)})"
        return self._writer.expression(
            node, text, loop.range, predicate, is_assigning=predicate.kind is not TypeKind.BOOL
        )

    def exists_one(self, node: Expression, loop: Loop[SourceFragment], predicate: SourceFragment) -> SourceFragment:
        writer = self._writer
        text = f"({writer.name(sum)}([{writer.bool_text(predicate)} {self._loop_text(loop)}]) == 1)"
        return writer.expression(node, text, loop.range, predicate, is_assigning=predicate.kind is not TypeKind.BOOL)

    def collect_list(
        self,
        node: Expression,
        loop: Loop[SourceFragment],
        condition: SourceFragment | None,
        element: SourceFragment,
        *,
        is_constant: bool,  # noqa: ARG002
    ) -> SourceFragment:
        text = f"[{self._writer.value_text(element)} {self._loop_text(loop)}{self._filter_text(condition)}]"
        parts = [loop.range, element] if condition is None else [loop.range, element, condition]
        return self._writer.expression(node, text, *parts, is_assigning=condition is not None)

    def collect_map(
        self,
        node: Expression,
        loop: Loop[SourceFragment],
        condition: SourceFragment | None,
        arguments: Sequence[SourceFragment],
    ) -> SourceFragment:
        writer = self._writer
        made = writer.name(_map_of_pairs if len(arguments) == 2 else _map_of_entries)
        entry = ", ".join(writer.value_text(argument) for argument in arguments)
        text = f"{made}([({entry}) {self._loop_text(loop)}{self._filter_text(condition)}])"
        parts = [loop.range, *arguments] if condition is None else [loop.range, *arguments, condition]
        return writer.expression(node, text, *parts, is_assigning=condition is not None)

    def _loop_text(self, loop: Loop[SourceFragment]) -> str:
        self._writer.require_cheap()
        if loop.range.is_assigning:
            # Python allows no assignments in the iterable of a comprehension.
            raise TooComplex("a loop over something that needs a temporary name")
        writer = self._writer
        elements = writer.value_text(loop.range)
        if loop.second_slot is not None:
            pairs = f"{elements}.items()" if is_text_map(loop.range) else f"{writer.name(pairs_of)}({elements})"
            return f"for v{loop.slot}, v{loop.second_slot} in {pairs}"
        if loop.range.kind is not TypeKind.LIST and not is_text_map(loop.range):
            elements = f"{writer.name(elements_of)}({elements})"
        return f"for v{loop.slot} in {elements}"

    def _filter_text(self, condition: SourceFragment | None) -> str:
        return "" if condition is None else f" if {self._writer.bool_text(condition)}"


# --- What generated code calls -------------------------------------------------------------------------------


def _has(value: Value, key: Value) -> bool:
    return find_value(value, key) is not MISSING


def _is_member(value: Value, members: frozenset[Hashable]) -> bool:
    return map_key(value) in members


def _bound(value: Value) -> Value:
    """The value of a name: see `loops.LazyValue` for the special case of an empty map."""
    return {} if value.__class__ is DomainMap and not value else value


def _map_of_pairs(pairs: Iterable[tuple[Value, Value]]) -> Map:
    made: Map = {}
    meter = Meter()
    for key, value in pairs:
        insert(meter, made, key, value)
    return made


def _map_of_entries(entries: Iterable[Map]) -> Map:
    made: Map = {}
    meter = Meter()
    for entry in entries:
        insert_all(meter, made, entry)
    return made
