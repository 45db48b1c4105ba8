"""Decoders of JSON into types, made by one thread at a time.

The first decoder of a type learns the type, and leaves what it has learnt so far for all others to see. A thread that makes a
decoder meanwhile would go on with half of it, and the process would crash. So whatever threads share is learnt here.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_learning: Final = Lock()


def make_decoder(wanted: type[T], **hooks: Any) -> msgspec.json.Decoder[T]:
    """What decodes JSON into a value of this type."""
    with _learning:
        return msgspec.json.Decoder(wanted, **hooks)
