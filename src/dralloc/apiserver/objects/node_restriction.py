"""Checks the writes of nodes with what is stored: `dralloc.access.node_restriction` has the rules."""

from __future__ import annotations

from dralloc.access.node_restriction import ObjectWrite, eviction_refusal, mirror_pod_refusal, write_refusal
from dralloc.access.users import User, node_of
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.registry import NODE, POD, Kind
from dralloc.apiserver.http.statuses import forbidden, not_found
from dralloc.apiserver.objects.api_resources import key_of
from dralloc.apiserver.objects.stored_form import from_stored, read_metadata
from dralloc.primitives.errors import Forbidden
from dralloc.store.interface import Store


class NodeRestriction:
    """Refuses writes of nodes with `Forbidden`; lets all other users pass."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def check_write(
        self,
        user: User,
        operation: str,
        kind: Kind,
        *,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
        new: ApiObject | None = None,
        old: ApiObject | None = None,
    ) -> None:
        node = node_of(user)
        if node is None:
            return
        shown = name or _name_of_new(new)
        if not node:
            raise forbidden(kind.group, kind.plural, shown, f'could not determine node from user "{user.name}"')
        write = ObjectWrite(
            node=node,
            operation=operation,
            group=kind.group,
            resource=kind.plural,
            subresource=subresource,
            namespace=namespace,
            name=name or (new.metadata.name if new is not None else ""),
            new=new,
            old=old,
        )
        if why := write_refusal(write):
            raise forbidden(kind.group, kind.plural, shown, why)

    async def check_eviction(self, user: User, namespace: str, name: str) -> str:
        """The UID of the pod that a node evicts; empty for other users, which may evict any pod."""
        node = node_of(user)
        if node is None:
            return ""
        record = await self._store.get(key_of(POD, namespace, name))
        if record is None:
            # Kubernetes looks the pod up under its singular name.
            raise not_found(POD.group, POD.singular, name)
        pod = from_stored(POD, record.value)
        if why := eviction_refusal(node, pod):
            raise self._forbidden_pod(name, why)
        return pod.metadata.uid

    async def check_new_pod(self, user: User, pod: ApiObject) -> None:
        """Check what `check_write` cannot: the pod's owner must be the stored node."""
        node = node_of(user)
        if node is None:
            return
        record = await self._store.get(key_of(NODE, "", node))
        if record is None:
            raise not_found(NODE.group, NODE.singular, node)
        if why := mirror_pod_refusal(node, pod, read_metadata(record.value).uid):
            raise self._forbidden_pod(_name_of_new(pod), why)

    def _forbidden_pod(self, name: str, why: str) -> Forbidden:
        return forbidden(POD.group, POD.plural, name, why)


def _name_of_new(new: ApiObject | None) -> str:
    """The name of a new object before it is generated, as Kubernetes shows it."""
    if new is None:
        return "Unknown"
    return new.metadata.name or new.metadata.generate_name or "Unknown"
