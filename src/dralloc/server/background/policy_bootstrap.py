"""Creates the default roles and bindings at the start, and brings stored ones up to date."""

from __future__ import annotations

import asyncio
from typing import Final

from dralloc.kube.registry import find_kind
from dralloc.primitives.errors import NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.default_policy import Document, documents_with, reconciled
from dralloc.server.read.api_resources import key_of
from dralloc.server.write.writer import Writer

_CONCURRENT: Final = 64


async def bootstrap_policy(writer: Writer, gates: FeatureGates) -> None:
    """Write what is missing. Another server on the same store may do the same at the same time."""
    slots = asyncio.Semaphore(_CONCURRENT)

    async def ensure(default: Document) -> None:
        async with slots:
            await _ensure(writer, default)

    await asyncio.gather(*map(ensure, documents_with(gates)))


async def _ensure(writer: Writer, default: Document) -> None:
    kind = find_kind(default["apiVersion"], default["kind"])
    assert kind is not None, "the default policy has kinds that are served"
    namespace, name = default["metadata"].get("namespace", ""), default["metadata"]["name"]
    content = {field: value for field, value in default.items() if field not in ("apiVersion", "kind")}
    if await writer.create_initial(kind, name, content, namespace=namespace):
        return
    try:
        await writer.edit(kind, key_of(kind, namespace, name), lambda stored: reconciled(stored, default))
    except NotFound:
        # Deleted in between: created again at the next start.
        return
