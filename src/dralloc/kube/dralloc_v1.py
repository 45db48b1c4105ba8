"""`/dralloc/v1`: the extensions with which a server of ours saves requests, in the form that server and clients exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

EXTENSIONS_PATH: Final = "/dralloc/v1/extensions"
BATCH_PATH: Final = "/dralloc/v1/batch"

# The status write that allocates a claim also adds the finalizer that protects it, if its metadata lists it.
ALLOCATION_FINALIZER: Final = "allocation-finalizer"
# One request carries many writes.
BATCH: Final = "batch"


class Extensions(Struct, frozen=True):
    extensions: frozenset[str]


class BatchedWrite(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    method: str
    path: str
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    content_type: str = "application/json"
    body: msgspec.Raw = msgspec.Raw(b"")


class WriteBatch(Struct, frozen=True):
    requests: tuple[BatchedWrite, ...]
