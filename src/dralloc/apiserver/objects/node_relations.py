"""Which objects belong to which node, from the stored pods and slices: the facts behind the node authorizer."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from dralloc.api.pod_references import MIRROR_POD, referred_objects
from dralloc.api.registry import POD, RESOURCE_SLICE
from dralloc.apiserver.objects.api_resources import name_of, namespace_of
from dralloc.apiserver.objects.store_view import KindIndex
from dralloc.store.interface import Store
from dralloc.store.records import Record

_OF_PODS: Final = frozenset(
    {"pods", "secrets", "configmaps", "persistentvolumeclaims", "serviceaccounts", "resourceclaims"}
)


class StoredRelations:
    """Follows pods and slices from the first question of a node on."""

    def __init__(self, store: Store) -> None:
        self._pods = _BoundPods(store)
        self._slices = _NodeSlices(store)

    async def ready(self, resource: str) -> None:
        """Wait until questions about the resource see every change that the store has delivered."""
        if resource in _OF_PODS:
            await self._pods.ready()
        elif resource == RESOURCE_SLICE.plural:
            await self._slices.ready()

    async def stop(self) -> None:
        await self._pods.stop()
        await self._slices.stop()

    def is_related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        if resource == RESOURCE_SLICE.plural:
            return self._slices.nodes.get(name) == node
        return node in self._pods.nodes.get((resource, namespace, name), ())


class _Named(Struct):
    node_name: str = field(default="", name="nodeName")


class _WithSpec(Struct):
    """Only the node in the spec: most of a record is skipped, not decoded."""

    spec: _Named = field(default_factory=_Named)


_NODE: Final = msgspec.json.Decoder(_WithSpec)
_TREE: Final = msgspec.json.Decoder(dict[str, Any])

_Object = tuple[str, str, str]


class _BoundPods(KindIndex):
    """The objects that bound pods refer to, each with its nodes and the number of pods there."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, POD)
        self.nodes: dict[_Object, Counter[str]] = {}
        self._of_pod: dict[str, tuple[str, frozenset[_Object]]] = {}

    def _forget_all(self) -> None:
        self.nodes.clear()
        self._of_pod.clear()

    def _learn(self, key: str, record: Record | None) -> None:
        before = self._of_pod.pop(key, None)
        now = _objects_of(key, record) if record is not None else None
        if now is not None:
            self._of_pod[key] = now
        if now == before:
            return
        if before is not None:
            node, objects = before
            for each in objects:
                nodes = self.nodes[each]
                nodes[node] -= 1
                if not nodes[node]:
                    del nodes[node]
                    if not nodes:
                        del self.nodes[each]
        if now is not None:
            node, objects = now
            for each in objects:
                self.nodes.setdefault(each, Counter())[node] += 1


class _NodeSlices(KindIndex):
    """The node of each slice that belongs to one."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, RESOURCE_SLICE)
        self.nodes: dict[str, str] = {}

    def _forget_all(self) -> None:
        self.nodes.clear()

    def _learn(self, key: str, record: Record | None) -> None:
        node = _NODE.decode(record.value).spec.node_name if record is not None else ""
        if node:
            self.nodes[name_of(key)] = node
        else:
            self.nodes.pop(name_of(key), None)


def _objects_of(key: str, record: Record) -> tuple[str, frozenset[_Object]] | None:
    node = _NODE.decode(record.value).spec.node_name
    if not node:
        return None
    pod = _TREE.decode(record.value)
    namespace = namespace_of(POD, key)
    itself = {("pods", namespace, name_of(key))}
    # A node creates mirror pods itself: they must not give it anything.
    if MIRROR_POD in (pod["metadata"].get("annotations") or {}):
        return node, frozenset(itself)
    return node, frozenset(itself | {(resource, namespace, name) for resource, name in referred_objects(pod)})
