"""Namespaces: nothing is created where there is none, or where one is on its way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from dralloc.api.registry import NAMESPACE, Kind
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.http.statuses import conflict, forbidden, not_found
from dralloc.apiserver.objects.api_resources import key_of
from dralloc.apiserver.objects.deletion_rules import is_released
from dralloc.apiserver.objects.stored_form import document_to_stored, read_document, read_metadata
from dralloc.primitives.errors import Cause
from dralloc.store.errors import RevisionConflict
from dralloc.store.interface import Store

# Holds a namespace until everything in it is gone.
CONTENT_FINALIZER: Final = "kubernetes"

_ATTEMPTS_MAX: Final = 20

# Every write asks for its namespace, which hardly ever changes.
_metadata_of: Final = lru_cache(maxsize=256)(read_metadata)


def first_namespaces() -> Iterator[tuple[str, Document]]:
    """The namespaces that are there from the start, as in every cluster, by name."""
    for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
        labels = {"kubernetes.io/metadata.name": name}
        spec = {"finalizers": [CONTENT_FINALIZER]}
        yield name, {"metadata": {"labels": labels}, "spec": spec, "status": {"phase": "Active"}}


class Namespaces:
    """What is known of namespaces when something is written into one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def labels_of(self, kind: Kind, namespace: str) -> Mapping[str, str] | None:
        """The labels of the namespace; `None` where the kind has none, or it is not there."""
        if not kind.namespaced:
            return None
        record = await self._store.get(key_of(NAMESPACE, "", namespace))
        return _metadata_of(record.value).labels if record else None

    async def labels_for_create(self, kind: Kind, namespace: str) -> Mapping[str, str] | None:
        """The labels of the namespace, which must be there to stay."""
        if not kind.namespaced:
            return None
        record = await self._store.get(key_of(NAMESPACE, "", namespace))
        if record is None:
            raise not_found("", "namespaces", namespace)
        metadata = _metadata_of(record.value)
        if metadata.deletion_timestamp:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise forbidden(kind.group, kind.plural, "", why, (cause,))
        return metadata.labels

    async def finalize(self, name: str, finalizers: list[str]) -> tuple[bytes, int]:
        """Set who still holds the namespace; it goes with the last one. Returns what was stored, and when."""
        return await self._change_holders(name, lambda _: finalizers)

    async def release(self, name: str, finalizer: str) -> None:
        """One of those who hold the namespace lets go."""
        await self._change_holders(name, lambda held: [one for one in held if one != finalizer])

    async def _change_holders(self, name: str, change: Callable[[list[str]], list[str]]) -> tuple[bytes, int]:
        key = key_of(NAMESPACE, "", name)
        for _ in range(_ATTEMPTS_MAX):
            record = await self._store.get(key)
            if record is None:
                raise not_found("", "namespaces", name)
            before = read_document(record.value)
            spec = before.get("spec") or {}
            after = {
                **before,
                "kind": "Namespace",
                "spec": {**spec, "finalizers": change(spec.get("finalizers") or [])},
            }
            stored = document_to_stored(after)
            try:
                if stored == record.value:
                    return stored, record.revision
                if is_released(after):
                    return stored, await self._store.delete(key, expected_revision=record.revision)
                return stored, (await self._store.update(key, stored, expected_revision=record.revision)).revision
            except RevisionConflict:
                continue
        raise conflict("", "namespaces", name)
