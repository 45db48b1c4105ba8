"""The objects that every cluster has from the start."""

from __future__ import annotations

from dralloc.api.registry import NAMESPACE, PRIORITY_CLASS
from dralloc.apiserver.objects.namespaces import initial_namespaces
from dralloc.apiserver.objects.pod_priorities import system_classes
from dralloc.apiserver.objects.writer import Writer


async def create_initial_objects(writer: Writer) -> None:
    """Create those that do not exist."""
    for kind, objects in ((NAMESPACE, initial_namespaces()), (PRIORITY_CLASS, system_classes())):
        for name, document in objects:
            await writer.create_initial(kind, name, document)
