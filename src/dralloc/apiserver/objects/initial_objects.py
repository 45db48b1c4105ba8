"""What is in every cluster from the start: made when a server begins, unless it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dralloc.api.registry import NAMESPACE, PRIORITY_CLASS, Kind
from dralloc.api.timestamps import print_timestamp
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.objects.api_resources import key_of
from dralloc.apiserver.objects.namespaces import first_namespaces
from dralloc.apiserver.objects.pod_priorities import system_classes
from dralloc.apiserver.objects.stored_form import document_to_stored
from dralloc.primitives.clock import Clock
from dralloc.store.errors import KeyExists
from dralloc.store.interface import Store


async def create_first_objects(store: Store, clock: Clock, new_uid: Callable[[], str]) -> None:
    for kind, name, document in _first():
        key = key_of(kind, "", name)
        if await store.get(key) is not None:
            continue
        metadata = {"name": name, "uid": new_uid(), "creationTimestamp": print_timestamp(clock.now())}
        made = {**document, "metadata": {**metadata, **document.get("metadata", {})}}
        try:
            await store.create(key, document_to_stored(made))
        except KeyExists:
            # Another server has begun as well.
            continue


def _first() -> Iterator[tuple[Kind, str, Document]]:
    yield from ((NAMESPACE, name, document) for name, document in first_namespaces())
    yield from ((PRIORITY_CLASS, name, document) for name, document in system_classes())
