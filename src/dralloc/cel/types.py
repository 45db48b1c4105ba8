"""Static types of expressions, and their assignability.

`dyn` is checked at runtime, `any` is the API server's type of a device attribute: both match everything, but they are
two types, and macros can only iterate over `dyn`. Type variables stand for types that are not known yet; a
`Substitution` collects their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final


class TypeKind(Enum):
    ANY = auto()
    BOOL = auto()
    BYTES = auto()
    DOUBLE = auto()
    DURATION = auto()
    DYN = auto()
    ERROR = auto()
    INT = auto()
    LIST = auto()
    MAP = auto()
    NULL = auto()
    OBJECT = auto()
    OPAQUE = auto()
    STRING = auto()
    TIMESTAMP = auto()
    TYPE = auto()
    UINT = auto()
    VARIABLE = auto()
    WRAPPER = auto()

    # Kinds are compared by identity and looked up in sets on every step of a check.
    __hash__ = object.__hash__


# A type can double with every bound name (`{a: a}`); this is far above all useful types.
SIZE_MAX: Final = 10_000


class TypeSizeError(Exception):
    """A type grew beyond the limit."""


class Type:
    """A type; `name` distinguishes the types of one kind (objects, opaque types, variables)."""

    __slots__ = ("_hash", "is_open", "kind", "name", "parameters", "size")

    def __init__(self, kind: TypeKind, name: str, parameters: tuple[Type, ...] = ()) -> None:
        self.kind = kind
        self.name = name
        self.parameters = parameters
        # Whether it contains a variable, and of how many types it consists.
        self.is_open = kind is TypeKind.VARIABLE
        self.size = 1
        for parameter in parameters:
            self.size += parameter.size
            self.is_open = self.is_open or parameter.is_open
        self._hash = hash((kind, name, self.size))
        if self.size > SIZE_MAX:
            raise TypeSizeError(f"the type has more than {SIZE_MAX} parts")

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Type)
            and self.kind is other.kind
            and self.size == other.size
            and self.name == other.name
            and self.parameters == other.parameters
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<Type {self}>"

    def __str__(self) -> str:
        shown: list[str] = []
        waiting: list[Type | str] = [self]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                shown.append(part)
                continue
            shown.append("wrapper" if part.kind is TypeKind.WRAPPER else part.name)
            if part.parameters:
                waiting.append(")")
                for parameter in reversed(part.parameters):
                    waiting += (parameter, ", ")
                waiting[-1] = "("
        return "".join(shown)


ANY: Final = Type(TypeKind.ANY, "any")
BOOL: Final = Type(TypeKind.BOOL, "bool")
BYTES: Final = Type(TypeKind.BYTES, "bytes")
DOUBLE: Final = Type(TypeKind.DOUBLE, "double")
DURATION: Final = Type(TypeKind.DURATION, "duration")
DYN: Final = Type(TypeKind.DYN, "dyn")
ERROR: Final = Type(TypeKind.ERROR, "!error!")
INT: Final = Type(TypeKind.INT, "int")
NULL: Final = Type(TypeKind.NULL, "null")
STRING: Final = Type(TypeKind.STRING, "string")
TIMESTAMP: Final = Type(TypeKind.TIMESTAMP, "timestamp")
UINT: Final = Type(TypeKind.UINT, "uint")

QUANTITY: Final = Type(TypeKind.OBJECT, "kubernetes.Quantity")
SEMVER: Final = Type(TypeKind.OBJECT, "kubernetes.Semver")
URL: Final = Type(TypeKind.OBJECT, "kubernetes.URL")
NAMED_FORMAT: Final = Type(TypeKind.OBJECT, "kubernetes.NamedFormat")
IP: Final = Type(TypeKind.OPAQUE, "net.IP")
CIDR: Final = Type(TypeKind.OPAQUE, "net.CIDR")
DEVICE: Final = Type(TypeKind.OBJECT, "kubernetes.DRADevice")

OPTIONAL_NAME: Final = "optional_type"


def list_of(element: Type) -> Type:
    return Type(TypeKind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type(TypeKind.MAP, "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type(TypeKind.OPAQUE, OPTIONAL_NAME, (value,))


def type_of(instance: Type) -> Type:
    """The type of a type as a value."""
    return Type(TypeKind.TYPE, "type", (instance,))


def variable(name: str) -> Type:
    return Type(TypeKind.VARIABLE, name)


def wrapper_of(primitive: Type) -> Type:
    """A primitive that may also be null."""
    return Type(TypeKind.WRAPPER, primitive.name, (primitive,))


def is_optional(candidate: Type) -> bool:
    return candidate.kind is TypeKind.OPAQUE and candidate.name == OPTIONAL_NAME


def without_optional(candidate: Type) -> Type:
    return candidate.parameters[0] if is_optional(candidate) else candidate


_WILDCARDS: Final = frozenset({TypeKind.DYN, TypeKind.ANY, TypeKind.ERROR})
_NULLABLE: Final = frozenset(
    {
        TypeKind.OPAQUE,
        TypeKind.OBJECT,
        TypeKind.ANY,
        TypeKind.DURATION,
        TypeKind.TIMESTAMP,
        TypeKind.WRAPPER,
        TypeKind.NULL,
    }
)
_COMPOUND: Final = frozenset({TypeKind.LIST, TypeKind.MAP, TypeKind.OPAQUE})


def is_dynamic(candidate: Type) -> bool:
    """True if it matches every type, and every type matches it."""
    return candidate.kind in _WILDCARDS


class Substitution:
    """The values of the type variables of one expression.

    Attempts are undone with a journal, because most tried overloads do not match.
    """

    __slots__ = ("_bindings", "_journal", "_variables")

    def __init__(self) -> None:
        self._bindings: dict[str, Type] = {}
        self._journal: list[tuple[str, Type | None]] = []
        self._variables = 0

    def fresh_variable(self) -> Type:
        self._variables += 1
        return variable(f"_var{self._variables}")

    def fits(self, given: Type, wanted: Type) -> bool:
        """True if the type is assignable; bindings of variables are kept in that case."""
        if given is wanted:
            return True
        mark = len(self._journal)
        if self._fits(given, wanted):
            return True
        self._undo(mark)
        return False

    def fit_all(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """True if all are assignable together; the lists have the same length."""
        mark = len(self._journal)
        for one, other in zip(given, wanted, strict=True):
            if one is not other and not self._fits(one, other):
                self._undo(mark)
                return False
        return True

    def resolve(self, candidate: Type, *, unknown_as_dyn: bool = False) -> Type:
        """Returns the type with all known variables substituted."""
        if not candidate.is_open:
            return candidate
        while candidate.kind is TypeKind.VARIABLE:
            bound = self._bindings.get(candidate.name)
            if bound is None:
                return DYN if unknown_as_dyn else candidate
            candidate = bound
        if not candidate.is_open:
            return candidate
        parameters = list(candidate.parameters)
        for position, parameter in enumerate(parameters):
            parameters[position] = self.resolve(parameter, unknown_as_dyn=unknown_as_dyn)
        return Type(candidate.kind, candidate.name, tuple(parameters))

    def joined(self, known: Type | None, added: Type) -> Type:
        """Returns the element type of a list after one more element: `dyn` if they differ."""
        if known is None:
            return added
        return _more_general(known, added) if self.fits(known, added) else DYN

    def _fits(self, given: Type, wanted: Type) -> bool:
        given_kind, wanted_kind = given.kind, wanted.kind
        if wanted_kind is TypeKind.VARIABLE:
            is_valid, was_bound = self._bind(wanted, given)
            if is_valid or was_bound:
                return is_valid
        if given_kind is TypeKind.VARIABLE:
            return self._bind(given, wanted)[0]
        if given_kind in _WILDCARDS or wanted_kind in _WILDCARDS:
            return True
        if given_kind is TypeKind.NULL:
            return wanted_kind in _NULLABLE
        if wanted_kind is TypeKind.NULL:
            return given_kind in _NULLABLE
        if wanted_kind is TypeKind.WRAPPER:
            return given == wanted or given == wanted.parameters[0]
        if given_kind is TypeKind.WRAPPER:
            return given.parameters[0] == wanted
        if given_kind is not wanted_kind:
            return False
        if given_kind in _COMPOUND:
            if given.name != wanted.name or len(given.parameters) != len(wanted.parameters):
                return False
            for one, other in zip(given.parameters, wanted.parameters, strict=True):
                if one is not other and not self._fits(one, other):
                    return False
            return True
        return given_kind is TypeKind.TYPE or given.name == wanted.name

    def _bind(self, bound: Type, candidate: Type) -> tuple[bool, bool]:
        """Returns whether the variable may be the candidate, and whether it was already bound."""
        if candidate.kind is TypeKind.VARIABLE and candidate.name == bound.name:
            return True, True
        known = self._bindings.get(bound.name)
        if known is None:
            if self._occurs(bound, candidate):
                return False, False
            self._set(bound.name, candidate)
            return True, False
        if known == candidate:
            return True, True
        if not self._fits(candidate, known):
            return False, True
        general = _more_general(candidate, known)
        if not self._occurs(bound, general):
            self._set(bound.name, general)
        return True, True

    def _occurs(self, bound: Type, within: Type) -> bool:
        """True if binding the variable to this type would make it contain itself."""
        waiting = [within]
        while waiting:
            part = waiting.pop()
            if not part.is_open:
                continue
            if part.kind is not TypeKind.VARIABLE:
                waiting += part.parameters
            elif part.name == bound.name:
                return True
            elif (known := self._bindings.get(part.name)) is not None:
                waiting.append(known)
        return False

    def _set(self, name: str, bound: Type) -> None:
        self._journal.append((name, self._bindings.get(name)))
        self._bindings[name] = bound

    def _undo(self, mark: int) -> None:
        while len(self._journal) > mark:
            name, before = self._journal.pop()
            if before is None:
                del self._bindings[name]
            else:
                self._bindings[name] = before


def _more_general(one: Type, other: Type) -> Type:
    return one if _is_as_general(one, other) else other


def _is_as_general(one: Type, other: Type) -> bool:
    one_kind, other_kind = one.kind, other.kind
    if one_kind in _WILDCARDS or one_kind is TypeKind.VARIABLE:
        return True
    if other_kind in _WILDCARDS or other_kind is TypeKind.VARIABLE:
        return False
    if one_kind is not other_kind:
        return False
    if one_kind in _COMPOUND:
        if one.name != other.name or len(one.parameters) != len(other.parameters):
            return False
        for part, other_part in zip(one.parameters, other.parameters, strict=True):
            if not _is_as_general(part, other_part):
                return False
        return True
    return one_kind is TypeKind.TYPE or one == other


def shown_signature(target: Type | None, arguments: Iterable[Type]) -> str:
    """Returns `int.(string, bool)` or `(int, string)`: the types of a call as text."""
    inner = ", ".join(str(argument) for argument in arguments)
    return f"({inner})" if target is None else f"{target}.({inner})"
