"""The client that people use: typed objects in, typed objects out, over any transport.

    async with connect_async() as client:
        claim = await client.get(ResourceClaim, "shared-nic", namespace="default")

Documents (plain dicts) are taken wherever objects are, so a manifest can be applied as it was read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from dralloc.client.api_calls import ApiCalls, PatchType, WatchEvent
from dralloc.client.known_resources import resource_for, resource_of
from dralloc.client.kubeconfig import ConnectionConfig, find_connection
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import Object, ObjectKey
from dralloc.client.unreadable_objects import report_unreadable
from dralloc.kube.meta_v1 import ApiObject

__all__ = ["AsyncClient"]

Item = ApiObject | Mapping[str, Any]

# What happens to the objects that a deleted object owns.
Propagation = Literal["Background", "Foreground", "Orphan"]

WATCH_TIMEOUT_S = 300


class AsyncClient:
    """A client of one server. Errors are those of `dralloc.primitives.errors`."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str = "default",
        field_manager: str = "dralloc",
        field_validation: str = "",
    ) -> None:
        self.calls = ApiCalls(transport, field_manager=field_manager, field_validation=field_validation)
        self.namespace = namespace

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.calls.close()

    async def get(self, object_type: type[Object], name: str, *, namespace: str | None = None) -> Object:
        """The object of this name. Raises NotFound."""
        resource = resource_for(object_type)
        return await self.calls.get(resource, self._key(resource.namespaced, name, namespace))

    async def list(
        self, object_type: type[Object], *, namespace: str | None = "", labels: str = "", fields: str = ""
    ) -> tuple[Object, ...]:
        """Returns all objects of the type, or those of one namespace."""
        items, _ = await self.calls.list_all(
            resource_for(object_type), namespace=namespace or "", label_selector=labels, field_selector=fields
        )
        return items

    async def create(self, item: Item) -> Any:
        """Creates an object or a manifest, and returns it as stored."""
        resource = resource_of(item)
        namespace = _metadata(item, "namespace") or self.namespace
        return await self.calls.create(resource, item, namespace=namespace if resource.namespaced else "")

    async def replace(self, item: Item) -> Any:
        """Replaces the object; raises Conflict if it changed since it was read."""
        return await self.calls.replace(resource_of(item), item)

    async def replace_status(self, item: Item) -> Any:
        """Replaces the status of an object."""
        return await self.calls.replace(resource_of(item), item, subresource="status")

    async def apply(self, item: Item, *, force: bool = False) -> Any:
        """Server-side apply: sets the fields of the object, and creates it if it does not exist."""
        resource = resource_of(item)
        key = self._key(resource.namespaced, _metadata(item, "name"), _metadata(item, "namespace") or None)
        return await self.calls.apply(resource, key, item, force=force)

    async def patch(
        self,
        object_type: type[Object],
        name: str,
        patch: Any,
        *,
        namespace: str | None = None,
        type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
    ) -> Object:
        """Changes an object by a patch."""
        resource = resource_for(object_type)
        key = self._key(resource.namespaced, name, namespace)
        return await self.calls.patch(resource, key, patch, type=type, subresource=subresource)

    async def delete(
        self,
        object_type: type[Object],
        name: str,
        *,
        namespace: str | None = None,
        propagation: Propagation = "Background",
    ) -> None:
        """Deletes the object and, as kubectl does, its dependents: without a policy, a server orphans the pods of a
        job.
        """
        resource = resource_for(object_type)
        key = self._key(resource.namespaced, name, namespace)
        await self.calls.delete(resource, key, propagation=propagation)

    async def watch(
        self, object_type: type[Object], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[WatchEvent[Object]]:
        """Yields every existing object (ADDED) and then every change, without end."""
        resource = resource_for(object_type)
        items, revision = await self.calls.list_all(
            resource, namespace=namespace, label_selector=labels, field_selector=fields
        )
        for item in items:
            yield WatchEvent("ADDED", item)
        while True:
            async for event in self.calls.watch(
                resource,
                resource_version=revision,
                timeout_s=WATCH_TIMEOUT_S,
                namespace=namespace,
                label_selector=labels,
                field_selector=fields,
            ):
                revision = event.object.metadata.resource_version
                if event.unreadable is not None:
                    report_unreadable(event.unreadable)
                elif event.type != "BOOKMARK":
                    yield event

    def _key(self, namespaced: bool, name: str, namespace: str | None) -> ObjectKey:
        return ObjectKey((namespace or self.namespace) if namespaced else "", name)


def connect_async(
    target: str | Path | None = None, *, token: str | None = None, context: str | None = None
) -> AsyncClient:
    """Returns a client for kubectl's current server, for the given kubeconfig, or for a URL."""
    # The HTTP client takes long to import, and a client of a server in this process does not need it.
    from dralloc.client.http_transport import HttpTransport

    connection = _connection(target, token, context)
    return AsyncClient(HttpTransport(connection), namespace=connection.namespace)


def _connection(target: str | Path | None, token: str | None, context: str | None) -> ConnectionConfig:
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        return ConnectionConfig(server=target, token=token)
    return find_connection(target, context=context)


def _metadata(item: Item, name: str) -> str:
    if isinstance(item, Mapping):
        return str((item.get("metadata") or {}).get(name) or "")
    return str(getattr(item.metadata, name))
