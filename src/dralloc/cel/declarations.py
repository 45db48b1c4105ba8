"""Declarations: the functions and the types they accept.

Overloads are written in text tables, one per line: `id (int, int) -> int`, and `id string.(int) -> string` for methods.
A capital letter is a type variable. The IDs are CEL's; costs and recorded answers use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dralloc.cel import types
from dralloc.cel.types import Type

RESOLUTIONS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class OverloadDeclaration:
    """One way to call a function; a method's target is its first parameter."""

    id: str
    is_method: bool
    parameters: tuple[Type, ...]
    result: Type
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolution:
    """The meaning of a call with given types: the matching overloads, and the type of the result."""

    overload_ids: tuple[str, ...]
    result: Type


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    name: str
    overloads: tuple[OverloadDeclaration, ...]
    _by_shape: dict[tuple[bool, int], tuple[OverloadDeclaration, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _resolved: dict[tuple[object, ...], Resolution] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for overload in self.overloads:
            shape = (overload.is_method, len(overload.parameters))
            self._by_shape[shape] = (*self._by_shape.get(shape, ()), overload)

    def of_shape(self, *, is_method: bool, count: int) -> tuple[OverloadDeclaration, ...]:
        """Returns the overloads of this form with this many parameters (a target counts)."""
        return self._by_shape.get((is_method, count), ())

    def remembered(self, key: tuple[object, ...]) -> Resolution | None:
        """Returns the cached resolution for a call of this form with these types."""
        return self._resolved.get(key)

    def remember(self, key: tuple[object, ...], resolution: Resolution) -> None:
        # Users choose the types, so the cache is bounded.
        if len(self._resolved) < RESOLUTIONS_MAX:
            self._resolved[key] = resolution

    def extended(self, overloads: Iterable[OverloadDeclaration]) -> FunctionDeclaration:
        return FunctionDeclaration(self.name, (*self.overloads, *overloads))


Functions = Mapping[str, FunctionDeclaration]


def declare(*tables: Mapping[str, str]) -> Functions:
    """Returns the functions of all tables; a name in several of them gets all their overloads."""
    functions: dict[str, FunctionDeclaration] = {}
    for table in tables:
        for name, lines in table.items():
            overloads = [_parse_overload(line) for line in lines.split("\n") if line.strip()]
            known = functions.get(name)
            functions[name] = (
                FunctionDeclaration(name, tuple(overloads)) if known is None else known.extended(overloads)
            )
    return functions


_NAMED_TYPES: Final = {
    **{named.name: named for named in (
        types.ANY, types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.DYN, types.INT, types.NULL,
        types.STRING, types.TIMESTAMP, types.UINT,
    )},
    "Quantity": types.QUANTITY,
    "Semver": types.SEMVER,
    "URL": types.URL,
    "Format": types.NAMED_FORMAT,
    "IP": types.IP,
    "CIDR": types.CIDR,
    **{name: Type(types.TypeKind.OBJECT, f"kubernetes.authorization.{name}") for name in (
        "Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision",
    )},
}  # fmt: skip
_GENERIC_TYPES: Final[Mapping[str, Callable[..., Type]]] = {
    "list": types.list_of,
    "map": types.map_of,
    "optional": types.optional_of,
    "type": types.type_of,
}
_SIGNATURE: Final = re.compile(r"\s*(?P<id>\S+) (?P<target>[\w<>, ]+\.)?\((?P<arguments>.*)\) -> (?P<result>.*?)\s*")
_WORD: Final = re.compile(r"\w+|[<>,]")


def _parse_overload(line: str) -> OverloadDeclaration:
    found = _SIGNATURE.fullmatch(line)
    assert found is not None, f"not a signature: {line!r}"
    arguments = _parse_types(found["arguments"])
    is_method = found["target"] is not None
    parameters = (*_parse_types(found["target"].rstrip(".")), *arguments) if is_method else arguments
    (result,) = _parse_types(found["result"])
    variables = tuple(sorted(set(re.findall(r"\b[A-Z]\b", line))))
    return OverloadDeclaration(found["id"], is_method, parameters, result, variables)


def _parse_types(text: str) -> tuple[Type, ...]:
    """The types of a comma-separated list."""
    words = _WORD.findall(text)
    words.reverse()
    parsed = []
    while words:
        parsed.append(_parse_type(words))
        if words:
            words.pop()
    return tuple(parsed)


def _parse_type(words: list[str]) -> Type:
    name = words.pop()
    if words and words[-1] == "<":
        parameters = []
        while words[-1] != ">":
            words.pop()
            parameters.append(_parse_type(words))
        words.pop()
        return _GENERIC_TYPES[name](*parameters)
    return types.variable(name) if len(name) == 1 else _NAMED_TYPES[name]
