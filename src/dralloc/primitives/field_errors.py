"""Field errors of an object: path, kind and message.

The kinds and their `reason` texts are Kubernetes': clients read them in the causes of a Status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct


class FaultKind(Enum):
    """What is wrong with a field; the value is the `reason` of a Status cause."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    TYPE_INVALID = "FieldValueTypeInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    NOT_FOUND = "FieldValueNotFound"
    INTERNAL = "InternalError"


PREFIX: Final = {
    FaultKind.REQUIRED: "Required value",
    FaultKind.INVALID: "Invalid value",
    FaultKind.TYPE_INVALID: "Invalid value",
    FaultKind.NOT_SUPPORTED: "Unsupported value",
    FaultKind.DUPLICATE: "Duplicate value",
    FaultKind.FORBIDDEN: "Forbidden",
    FaultKind.TOO_LONG: "Too long",
    FaultKind.TOO_MANY: "Too many",
    FaultKind.NOT_FOUND: "Not found",
    FaultKind.INTERNAL: "Internal error",
}

# Kinds whose message does not repeat the invalid value.
WITHOUT_VALUE: Final = frozenset(
    {FaultKind.REQUIRED, FaultKind.FORBIDDEN, FaultKind.TOO_LONG, FaultKind.TOO_MANY, FaultKind.INTERNAL}
)


class FieldPath(Struct, frozen=True, eq=False, gc=False):
    """The path from an object's root to a field: names, list positions and map keys.

    Validation creates a path for every visited field but prints only those of errors. A path is therefore a link to its
    parent, and each step costs one small object.
    """

    parent: FieldPath | None
    step: str | int
    is_key: bool = False

    @classmethod
    def of(cls, first: str, *more: str) -> FieldPath:
        path = cls(None, first)
        return path.child(*more) if more else path

    def child(self, name: str, *more: str) -> FieldPath:
        path = FieldPath(self, name)
        for deeper in more:
            path = FieldPath(path, deeper)
        return path

    def index(self, position: int) -> FieldPath:
        return FieldPath(self, position)

    def key(self, name: str) -> FieldPath:
        return FieldPath(self, name, True)

    @property
    def steps(self) -> tuple[str | int, ...]:
        """Names and keys as strings and list positions as integers, starting at the root."""
        return tuple(path.step for path in self._from_root())

    def __str__(self) -> str:
        parts: list[str] = []
        for path in self._from_root():
            if path.is_key or isinstance(path.step, int):
                parts.append(f"[{path.step}]")
            else:
                parts.append(f".{path.step}" if parts else path.step)
        return "".join(parts)

    def __repr__(self) -> str:
        return f"FieldPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, FieldPath) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def _from_root(self) -> list[FieldPath]:
        chain: list[FieldPath] = []
        path: FieldPath | None = self
        while path is not None:
            chain.append(path)
            path = path.parent
        chain.reverse()
        return chain


@dataclass(frozen=True, slots=True)
class FieldError:
    kind: FaultKind
    path: FieldPath
    detail: str
    value: object = None

    @property
    def reason(self) -> str:
        return self.kind.value

    @property
    def message(self) -> str:
        """Returns the error without its path, in Kubernetes' wording."""
        text = PREFIX[self.kind]
        if self.kind not in WITHOUT_VALUE:
            text += f": {_shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def required(path: FieldPath, detail: str = "") -> FieldError:
    return _fault(FaultKind.REQUIRED, path, detail)


def invalid(path: FieldPath, value: object, detail: str) -> FieldError:
    return _fault(FaultKind.INVALID, path, detail, value)


def not_supported(path: FieldPath, value: object, supported: tuple[str, ...], *, in_order: bool = False) -> FieldError:
    """`in_order`: lists the supported values as given instead of sorted."""
    names = ", ".join(f'"{name}"' for name in (supported if in_order else sorted(supported)))
    return _fault(FaultKind.NOT_SUPPORTED, path, f"supported values: {names}", value)


def duplicate(path: FieldPath, value: object) -> FieldError:
    return _fault(FaultKind.DUPLICATE, path, "", value)


def forbidden(path: FieldPath, detail: str) -> FieldError:
    return _fault(FaultKind.FORBIDDEN, path, detail)


def too_long(path: FieldPath, length_max: int) -> FieldError:
    return _fault(FaultKind.TOO_LONG, path, f"may not be more than {length_max} bytes")


def too_many(path: FieldPath, count: int, count_max: int) -> FieldError:
    return _fault(FaultKind.TOO_MANY, path, f"{count}: must have at most {count_max} items", count)


def not_found(path: FieldPath, value: object, detail: str = "") -> FieldError:
    return _fault(FaultKind.NOT_FOUND, path, detail, value)


def internal(path: FieldPath, detail: str) -> FieldError:
    return _fault(FaultKind.INTERNAL, path, detail)


def distinct(faults: Iterable[FieldError]) -> Iterator[FieldError]:
    """Two rules that find the same error count as one."""
    seen: set[str] = set()
    for fault in faults:
        text = str(fault)
        if text not in seen:
            seen.add(text)
            yield fault


def _fault(kind: FaultKind, path: FieldPath, detail: str, value: object = None) -> FieldError:
    return FieldError(kind, path, detail, value)


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | dict):
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    return str(value)


def _plain(value: object) -> object:
    """A value of a type of its own, such as a number that keeps its text, as a plain one."""
    return float(value) if isinstance(value, float) else str(value)
