"""Namespaces: objects are created only in namespaces that exist and are not being deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from dralloc.kube.kind import Kind
from dralloc.kube.registry import NAMESPACE
from dralloc.primitives.errors import Cause
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.statuses import conflict, forbidden, not_found
from dralloc.server.read.api_resources import key_of
from dralloc.server.read.stored_form import read_metadata
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record

# Holds a namespace until it is empty.
CONTENT_FINALIZER: Final = "kubernetes"


# Every write reads its namespace, which rarely changes.
_metadata_of: Final = lru_cache(maxsize=256)(read_metadata)


def initial_namespaces() -> Iterator[tuple[str, Document]]:
    """The namespaces that every cluster has, by name."""
    for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
        labels = {"kubernetes.io/metadata.name": name}
        spec = {"finalizers": [CONTENT_FINALIZER]}
        yield name, {"metadata": {"labels": labels}, "spec": spec, "status": {"phase": "Active"}}


class Namespaces:
    """Looks up the namespace of a write."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, kind: Kind, namespace: str) -> Record | None:
        """The namespace; `None` for cluster-scoped kinds, or if it does not exist."""
        return await self._store.get(key_of(NAMESPACE, "", namespace)) if kind.namespaced else None

    async def find_open(self, kind: Kind, namespace: str) -> Record | None:
        """The namespace of a create; refuses if it does not exist or is being deleted.

        The create must state it to the store as unchanged: what is created after the deletion has begun may not be found when the
        namespace is emptied, and stays for ever.
        """
        if not kind.namespaced:
            return None
        record = await self.find(kind, namespace)
        if record is None:
            raise not_found("", "namespaces", namespace)
        if _metadata_of(record.value).deletion_timestamp:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise forbidden(kind.group, kind.plural, "", why, (cause,))
        return record


def labels_of(namespace: Record | None) -> Mapping[str, str] | None:
    return _metadata_of(namespace.value).labels if namespace is not None else None


def finalized(namespace: Document, stated: Document, finalizers: list[str]) -> Document:
    """The namespace with exactly these finalizers, if it has the UID and version that a client states in its metadata."""
    metadata = namespace["metadata"]
    if any(stated.get(name) not in (None, "", metadata[name]) for name in ("uid", "resourceVersion")):
        raise conflict("", NAMESPACE.plural, metadata["name"])
    return _with_finalizers(namespace, finalizers)


def _with_finalizers(namespace: Document, finalizers: list[str]) -> Document:
    return {**namespace, "spec": {**(namespace.get("spec") or {}), "finalizers": finalizers}}


def without_content_finalizer(namespace: Document) -> Document:
    """The namespace without the finalizer that holds it while it has content."""
    finalizers = (namespace.get("spec") or {}).get("finalizers") or []
    return _with_finalizers(namespace, [name for name in finalizers if name != CONTENT_FINALIZER])
