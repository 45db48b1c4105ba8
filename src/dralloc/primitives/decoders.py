"""JSON decoders for types, constructed by one thread at a time, and what they raise.

msgspec analyses a type when its first decoder is made, and publishes the partial result while it does so. A second
thread that makes a decoder for the same type meanwhile would use that partial result and crash the process. All
decoders that threads share are therefore made here, under a lock.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

# What decoding raises for bytes that are not JSON of the wanted type: text that is not UTF-8 and deep nesting have exceptions of their own.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_learning: Final = Lock()


def make_decoder(wanted: type[T], **hooks: Any) -> msgspec.json.Decoder[T]:
    """Returns a decoder of JSON into values of the type."""
    with _learning:
        return msgspec.json.Decoder(wanted, **hooks)
