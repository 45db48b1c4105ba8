"""The base of every wire type, and the few scalar types that JSON does not have.

Absent is `None`, everywhere: what a value means when it is absent is said in `defaulting`, never by a
default here, because a default would silently drop what a user wrote. Where Kubernetes always prints a
field, even empty, the field is declared with `printed(...)`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# Timestamps stay text: what a client wrote is what it reads back.
Time = str


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """An immutable piece of an API object. Acyclic, so the garbage collector need not track it."""


def printed(empty: Any) -> Any:
    """A field that is always printed, with this value where the object has none."""
    return msgspec.field(default_factory=lambda: empty)
