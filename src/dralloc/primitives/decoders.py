"""JSON decoders for types, constructed by one thread at a time.

msgspec analyses a type when its first decoder is made, and publishes the partial result while it does so. A second
thread that makes a decoder for the same type meanwhile would use that partial result and crash the process. All
decoders that threads share are therefore made here, under a lock.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_learning: Final = Lock()


def make_decoder(wanted: type[T], **hooks: Any) -> msgspec.json.Decoder[T]:
    """Returns a decoder of JSON into values of the type."""
    with _learning:
        return msgspec.json.Decoder(wanted, **hooks)
