"""The base of every wire type, and the scalar types that JSON lacks.

A field's default is the value that Kubernetes uses when the field is absent, and never more than that: the zero value
(`""`, `0`, `()`, `{}`) if its type has no "unset", and `None` if it does. A field at its default is not printed, so
`count: 0` comes back absent, as in Kubernetes. `resource_defaults` applies semantic defaults. A field that Kubernetes always
prints, even if empty, is declared with `printed(...)`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_not
from typing import Annotated, Any, TypeVar, dataclass_transform

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# Timestamps are text; `timestamps` parses and prints them.
Time = str


def printed(empty: Any) -> Any:
    """A field that is always printed; this value is the default."""
    return msgspec.field(default_factory=lambda: empty)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """An immutable part of an API object. Acyclic, so the garbage collector need not track it."""


ItemT = TypeVar("ItemT")


def map_changed(items: tuple[ItemT, ...], change: Callable[[ItemT], ItemT]) -> tuple[ItemT, ...]:
    """Returns the changed items, or the same tuple if no item changes."""
    if not items:
        return items
    changed = tuple(map(change, items))
    return changed if any(map(is_not, changed, items)) else items
