"""Type-checks all parts of an expression.

The rules are CEL's: every operator and function has overloads, `dyn` matches all of them, and a call without a matching
overload is an error. All errors of an expression are reported, not only the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dralloc.cel import syntax, types
from dralloc.cel.declarations import FunctionDeclaration, OverloadDeclaration, Resolution
from dralloc.cel.environment import Environment
from dralloc.cel.errors import CelTypeError, Problem
from dralloc.cel.syntax import walk
from dralloc.cel.types import Substitution, Type, TypeKind

PROBLEMS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class TypedExpression:
    """A tree, the type of each of its nodes, and the IDs of the overloads that each call may mean.

    `denoted_types` holds the nodes that name a type, as `int` or `google.protobuf.Duration` do.
    """

    parsed: syntax.ParsedExpression
    environment: Environment
    types: Mapping[int, Type]
    overloads: Mapping[int, tuple[str, ...]]
    denoted_types: Mapping[int, str]

    @property
    def root(self) -> syntax.Expression:
        return self.parsed.root

    @property
    def result(self) -> Type:
        return self.types[self.parsed.root.id]


def check_types(parsed: syntax.ParsedExpression, environment: Environment) -> TypedExpression:
    """Returns the types of an expression. Raises `CelTypeError`."""
    checker = _Checker(environment)
    try:
        walk(parsed.root, checker.visit)
        resolved = checker.resolved_types()
    except types.TypeSizeError as error:
        raise CelTypeError(parsed.text, [Problem(str(error))]) from None
    if checker.problems:
        ordered = sorted(checker.problems, key=lambda problem: problem.offset or 0)
        raise CelTypeError(parsed.text, ordered[:PROBLEMS_MAX])
    return TypedExpression(parsed, environment, resolved, checker.overloads, checker.denoted_types)


_LITERAL_TYPES: Final = {
    syntax.LiteralKind.NULL: types.NULL,
    syntax.LiteralKind.BOOL: types.BOOL,
    syntax.LiteralKind.INT: types.INT,
    syntax.LiteralKind.UINT: types.UINT,
    syntax.LiteralKind.DOUBLE: types.DOUBLE,
    syntax.LiteralKind.STRING: types.STRING,
    syntax.LiteralKind.BYTES: types.BYTES,
}


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.substitution = Substitution()
        self.scopes: list[dict[str, Type]] = []
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, tuple[str, ...]] = {}
        self.denoted_types: dict[int, str] = {}
        self.problems: list[Problem] = []

    def resolved_types(self) -> dict[int, Type]:
        """Returns all types with their variables resolved."""
        resolve = self.substitution.resolve
        return {
            node: resolve(known, unknown_as_dyn=True) if known.is_open else known for node, known in self.types.items()
        }

    def visit(self, node: syntax.Expression) -> Iterator[syntax.Expression] | None:
        if isinstance(node, syntax.Literal):
            self.types[node.id] = _LITERAL_TYPES[node.kind]
            return None
        if isinstance(node, syntax.Identifier):
            self._visit_identifier(node)
            return None
        if isinstance(node, syntax.Call):
            return self._visit_optional_select(node) if node.function == "_?._" else self._visit_call(node)
        if isinstance(node, syntax.Select):
            return self._visit_select(node)
        if isinstance(node, syntax.ListLiteral):
            return self._visit_list(node)
        if isinstance(node, syntax.Comprehension):
            return self._visit_comprehension(node)
        if isinstance(node, syntax.MapLiteral):
            return self._visit_map(node)
        return self._visit_message(node)

    # Names and fields.

    def _visit_identifier(self, node: syntax.Identifier) -> None:
        found = self._lookup(node.name)
        if found is None:
            self._report(f"undeclared reference to {node.name!r}", node)
            found = types.ERROR
        elif found.kind is TypeKind.TYPE and not self._is_local(node.name):
            self.denoted_types[node.id] = node.name.removeprefix(".")
        self.types[node.id] = found

    def _lookup(self, name: str) -> Type | None:
        if name.startswith("."):
            return self.environment.variables.get(name[1:])
        for scope in reversed(self.scopes):
            found = scope.get(name)
            if found is not None:
                return found
        return self.environment.variables.get(name)

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self.scopes)

    def _visit_select(self, node: syntax.Select) -> Iterator[syntax.Expression] | None:
        if not node.tests_presence and self._denotes_type(node):
            return None
        return self._visit_field(node)

    def _denotes_type(self, node: syntax.Select) -> bool:
        """True if the whole of `a.b.c` is the name of a type; then it is not a chain of fields."""
        names: list[str] = []
        part: syntax.Expression = node
        while isinstance(part, syntax.Select) and not part.tests_presence:
            names.append(part.field)
            part = part.operand
        if not isinstance(part, syntax.Identifier) or self._is_local(part.name):
            return False
        name = ".".join((part.name.removeprefix("."), *reversed(names)))
        found = self.environment.variables.get(name)
        if found is None:
            return False
        self.types[node.id] = found
        self.denoted_types[node.id] = name
        return True

    def _visit_field(self, node: syntax.Select) -> Iterator[syntax.Expression]:
        yield node.operand
        selected = self._field_type(node, node.operand, node.field, is_optional=False)
        self.types[node.id] = types.BOOL if node.tests_presence else selected

    def _visit_optional_select(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        operand, key = node.arguments
        assert isinstance(key, syntax.Literal), "the parser puts the field's name here"
        yield operand
        self.types[key.id] = types.STRING
        self.types[node.id] = self._field_type(node, operand, str(key.value), is_optional=True)
        self.overloads[node.id] = ("select_optional_field",)

    def _field_type(
        self, node: syntax.Expression, operand: syntax.Expression, field: str, *, is_optional: bool
    ) -> Type:
        """Returns the type of a field; optional if the operand is, or if it is selected with `.?`."""
        operand_type = self.substitution.resolve(self.types[operand.id])
        is_optional = is_optional or types.is_optional(operand_type)
        selected = self._plain_field_type(node, types.without_optional(operand_type), field)
        return types.optional_of(selected) if is_optional else selected

    def _plain_field_type(self, node: syntax.Expression, operand: Type, field: str) -> Type:
        if operand.kind is TypeKind.MAP:
            return operand.parameters[1]
        if operand.kind is TypeKind.OBJECT:
            message = self.environment.messages.get(operand.name)
            if message is None:
                self._report(f"a value of type {operand} has no field {field!r}", node)
                return types.ERROR
            if field not in message.fields:
                known = ", ".join(sorted(message.fields))
                self._report(f"undefined field {field!r} of {operand}; its fields are {known}", node)
                return types.ERROR
            return message.fields[field]
        if operand.kind is TypeKind.VARIABLE:
            self.substitution.fits(types.DYN, operand)
            return types.DYN
        if not types.is_dynamic(operand):
            self._report(f"a value of type {operand} has no fields, so there is no {field!r}", node)
            return types.ERROR
        return types.DYN

    # Calls.

    def _visit_call(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        yield from node.arguments
        if node.target is not None:
            yield node.target
        function = self.environment.functions.get(node.function.removeprefix("."))
        if function is None:
            self._report(f"undeclared reference to function {node.function!r}", node)
            self.types[node.id] = types.ERROR
        else:
            self.types[node.id] = self._resolve_overload(node, function)

    def _resolve_overload(self, node: syntax.Call, function: FunctionDeclaration) -> Type:
        given = [self.types[argument.id] for argument in node.arguments]
        if node.target is not None:
            given.insert(0, self.types[node.target.id])
        key = (node.target is None, *given)
        resolution = function.remembered(key)
        if resolution is None:
            resolution = self._find_overloads(function, given, is_method=node.target is not None)
            if resolution is None:
                self._report_no_overload(node, function, given)
                return types.ERROR
            # Without type variables the resolution has no side effects, so it can be cached.
            if not resolution.result.is_open and not any(one.is_open for one in given):
                function.remember(key, resolution)
        self.overloads[node.id] = resolution.overload_ids
        return resolution.result

    def _find_overloads(
        self, function: FunctionDeclaration, given: list[Type], *, is_method: bool
    ) -> Resolution | None:
        """Returns the matching overloads. Their type is that of the first, or `dyn` if others differ."""
        result: Type | None = None
        ids: tuple[str, ...] = ()
        for overload in function.of_shape(is_method=is_method, count=len(given)):
            returned = self._returned(overload, given)
            if returned is None:
                continue
            ids += (overload.id,)
            if result is None:
                result = returned
            elif result is not returned and not types.is_dynamic(result) and result != returned:
                result = types.DYN
        return None if result is None else Resolution(ids, result)

    def _returned(self, overload: OverloadDeclaration, given: list[Type]) -> Type | None:
        """Returns the result type of the overload for these types; None if it does not match."""
        substitution = self.substitution
        if not overload.variables:
            return overload.result if substitution.fit_all(given, overload.parameters) else None
        fresh = {name: substitution.fresh_variable() for name in overload.variables}
        parameters = [_instance(parameter, fresh) for parameter in overload.parameters]
        if not substitution.fit_all(given, parameters):
            return None
        return substitution.resolve(_instance(overload.result, fresh))

    def _report_no_overload(self, node: syntax.Call, function: FunctionDeclaration, given: list[Type]) -> None:
        shown = [self.substitution.resolve(one, unknown_as_dyn=True) for one in given]
        target = shown.pop(0) if node.target is not None else None
        signature = types.shown_signature(target, shown)
        self._report(f"no overload of {shown_function(function.name)} for {signature}", node)

    # Lists, maps and messages.

    def _visit_list(self, node: syntax.ListLiteral) -> Iterator[syntax.Expression]:
        yield from node.elements
        element_type: Type | None = None
        for position, element in enumerate(node.elements):
            given = self.types[element.id]
            if position in node.optional:
                given = self._optional_value(element, given)
            element_type = self.substitution.joined(element_type, given)
        self.types[node.id] = types.list_of(element_type or self.substitution.fresh_variable())

    def _visit_map(self, node: syntax.MapLiteral) -> Iterator[syntax.Expression]:
        key_type: Type | None = None
        value_type: Type | None = None
        for entry in node.entries:
            yield entry.key
            yield entry.value
            given = self.types[entry.value.id]
            if entry.optional:
                given = self._optional_value(entry.value, given)
            key_type = self.substitution.joined(key_type, self.types[entry.key.id])
            value_type = self.substitution.joined(value_type, given)
        fresh = self.substitution.fresh_variable
        self.types[node.id] = types.map_of(key_type or fresh(), value_type or fresh())

    def _visit_message(self, node: syntax.MessageLiteral) -> Iterator[syntax.Expression]:
        for entry in node.entries:
            yield entry.value
        message = self.environment.messages.get(node.type_name.removeprefix("."))
        if message is None:
            self._report(f"there is no message type {node.type_name!r}", node)
            self.types[node.id] = types.ERROR
            return
        self.types[node.id] = message.type
        for entry in node.entries:
            given = self.types[entry.value.id]
            if entry.optional:
                given = self._optional_value(entry.value, given)
            wanted = message.fields.get(entry.field)
            if wanted is None:
                self._report(f"undefined field {entry.field!r} of {node.type_name}", entry.value)
            elif not self.substitution.fits(wanted, given):
                self._report_mismatch(entry.value, wanted, given)

    def _optional_value(self, element: syntax.Expression, given: Type) -> Type:
        """Returns the type that an element `?element` adds: the value inside an optional."""
        known = self.substitution.resolve(given)
        if not types.is_optional(known) and not types.is_dynamic(known):
            self._report_mismatch(element, types.optional_of(known), known)
        return types.without_optional(known)

    # Comprehensions.

    def _visit_comprehension(self, node: syntax.Comprehension) -> Iterator[syntax.Expression]:
        yield node.range
        yield node.initial
        accumulator_type = self.types[node.initial.id]
        self.scopes.append({node.accumulator: accumulator_type})
        self.scopes.append(self._iteration_variables(node))
        yield node.condition
        self._expect(node.condition, types.BOOL)
        yield node.step
        self._expect(node.step, accumulator_type)
        self.scopes.pop()
        yield node.result
        self.scopes.pop()
        self.types[node.id] = self.substitution.resolve(self.types[node.result.id])

    def _iteration_variables(self, node: syntax.Comprehension) -> dict[str, Type]:
        iterated = self.substitution.resolve(self.types[node.range.id])
        match iterated.kind:
            case TypeKind.LIST:
                first, second = types.INT, iterated.parameters[0]
                if node.second_variable is None:
                    first = second
            case TypeKind.MAP:
                first, second = iterated.parameters
            case TypeKind.DYN | TypeKind.ERROR | TypeKind.VARIABLE:
                self.substitution.fits(types.DYN, iterated)
                first = second = types.DYN
            case _:
                self._report(f"a value of type {iterated} cannot be iterated: only lists, maps and dyn can", node.range)
                first = second = types.ERROR
        variables = {node.variable: first}
        if node.second_variable is not None:
            variables[node.second_variable] = second
        return variables

    # Errors.

    def _expect(self, node: syntax.Expression, wanted: Type) -> None:
        given = self.types[node.id]
        if not self.substitution.fits(wanted, given):
            self._report_mismatch(node, wanted, given)

    def _report_mismatch(self, node: syntax.Expression, wanted: Type, given: Type) -> None:
        shown_wanted = self.substitution.resolve(wanted, unknown_as_dyn=True)
        shown_given = self.substitution.resolve(given, unknown_as_dyn=True)
        self._report(f"a value of type {shown_wanted} is needed, this is {shown_given}", node)

    def _report(self, message: str, node: syntax.Expression) -> None:
        self.problems.append(Problem(message, node.offset))


def _instance(generic: Type, fresh: Mapping[str, Type]) -> Type:
    """Returns the type with fresh variables instead of the declaration's."""
    if not generic.is_open:
        return generic
    if generic.kind is TypeKind.VARIABLE:
        return fresh[generic.name]
    return Type(generic.kind, generic.name, tuple(_instance(parameter, fresh) for parameter in generic.parameters))


def shown_function(name: str) -> str:
    """Returns a function's name as users know it: operators without placeholders for their operands."""
    return repr(name.replace("_", "").lstrip("@") if not name[-1].isalnum() or name == "@in" else name)
