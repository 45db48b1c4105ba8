"""Faults of an object: where (a field path), of which kind, and in what words.

The kinds and their `reason` texts are Kubernetes': clients read them in the causes of a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class FaultKind(Enum):
    """What is wrong with a field; the value is the reason that a Status cause carries."""

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

# Kinds whose message does not repeat the offending value.
WITHOUT_VALUE: Final = frozenset({FaultKind.REQUIRED, FaultKind.FORBIDDEN, FaultKind.TOO_LONG, FaultKind.TOO_MANY, FaultKind.INTERNAL})


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The way from an object's root to a field: names, list positions and map keys."""

    steps: tuple[str | int, ...] = ()
    # Positions in `steps` that are map keys: they print in brackets, as list positions do.
    keys: frozenset[int] = frozenset()

    @classmethod
    def of(cls, *names: str) -> FieldPath:
        return cls(steps=names)

    def child(self, *names: str) -> FieldPath:
        return replace(self, steps=self.steps + names)

    def index(self, position: int) -> FieldPath:
        return replace(self, steps=(*self.steps, position))

    def key(self, name: str) -> FieldPath:
        return FieldPath(steps=(*self.steps, name), keys=self.keys | {len(self.steps)})

    def __str__(self) -> str:
        parts: list[str] = []
        for position, step in enumerate(self.steps):
            if isinstance(step, int) or position in self.keys:
                parts.append(f"[{step}]")
            else:
                parts.append(f".{step}" if parts else step)
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of one field."""

    kind: FaultKind
    path: FieldPath
    detail: str
    value: object = None

    @property
    def reason(self) -> str:
        return self.kind.value

    @property
    def message(self) -> str:
        """The fault without its path, in the words that Kubernetes uses."""
        text = PREFIX[self.kind]
        if self.kind not in WITHOUT_VALUE:
            text += f": {_shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def required(path: FieldPath, detail: str = "") -> FieldError:
    return FieldError(FaultKind.REQUIRED, path, detail)


def invalid(path: FieldPath, value: object, detail: str) -> FieldError:
    return FieldError(FaultKind.INVALID, path, detail, value)


def not_supported(path: FieldPath, value: object, supported: tuple[str, ...]) -> FieldError:
    names = ", ".join(f'"{name}"' for name in sorted(supported))
    return FieldError(FaultKind.NOT_SUPPORTED, path, f"supported values: {names}", value)


def duplicate(path: FieldPath, value: object) -> FieldError:
    return FieldError(FaultKind.DUPLICATE, path, "", value)


def forbidden(path: FieldPath, detail: str) -> FieldError:
    return FieldError(FaultKind.FORBIDDEN, path, detail)


def too_long(path: FieldPath, length_max: int) -> FieldError:
    return FieldError(FaultKind.TOO_LONG, path, f"may not be more than {length_max} bytes")


def too_many(path: FieldPath, count: int, count_max: int) -> FieldError:
    return FieldError(FaultKind.TOO_MANY, path, f"{count}: must have at most {count_max} items", count)


def not_found(path: FieldPath, value: object) -> FieldError:
    return FieldError(FaultKind.NOT_FOUND, path, "", value)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
