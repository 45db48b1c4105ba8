"""Who may do what on this server: decides every request for access from what is stored."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from dralloc.kube.pod_references import MIRROR_POD, referred_objects
from dralloc.kube.registry import POD, RESOURCE_SLICE
from dralloc.primitives.errors import joined_errors
from dralloc.server.access.authorizer import (
    ALLOWED,
    NO_OPINION,
    AccessRequest,
    Administrators,
    Authorizer,
    AuthorizerChain,
    Decision,
)
from dralloc.server.access.node_authorizer import NodeAuthorizer
from dralloc.server.access.rbac import KnownRules
from dralloc.server.access.users import User, node_of
from dralloc.server.read.api_resources import name_of, namespace_of, prefix_of
from dralloc.server.read.store_view import RecordIndex, StoreView
from dralloc.server.read.stored_policy import StoredPolicy
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record

_NODE_RULES_UNKNOWN: Final = "node authorizer does not support user rule resolution"


class AccessControl:
    """Asks for administrators, then for nodes, then the stored roles. Another `authorizer` replaces all of them.

    Without a policy, roles are not enforced.
    """

    def __init__(self, store: Store, authorizer: Authorizer | None = None, policy: StoredPolicy | None = None) -> None:
        self._relations = StoredRelations(store)
        self._policy = policy
        self._authorizer = authorizer or AuthorizerChain(
            (Administrators(), NodeAuthorizer(self._relations), policy or _EveryoneElse())
        )

    async def decide(self, asked: AccessRequest) -> Decision:
        """The decision on everything that the store has delivered by now."""
        await self.ready(asked)
        return self._authorizer.decide(asked)

    def decide_again(self, asked: AccessRequest) -> Decision:
        """A further decision for a request after `ready` or `decide`."""
        return self._authorizer.decide(asked)

    async def ready(self, asked: AccessRequest) -> None:
        """Wait until decisions on such requests see every change that the store has delivered."""
        if node_of(asked.user) is not None:
            await self._relations.ready(asked.resource)

    async def rules_of(self, user: User, namespace: str) -> KnownRules:
        """The rules that hold for the user in the namespace, for a SelfSubjectRulesReview."""
        is_node = node_of(user) is not None
        errors = (_NODE_RULES_UNKNOWN,) if is_node else ()
        if self._policy is None:
            return KnownRules(evaluation_error=joined_errors(errors), incomplete=True)
        await self._policy.ready()
        rules = self._policy.rules_of(user, namespace)
        return KnownRules(
            resource_rules=rules.resource_rules,
            non_resource_rules=rules.non_resource_rules,
            evaluation_error=joined_errors(error for error in (*errors, rules.evaluation_error) if error),
            incomplete=is_node,
        )

    async def stop(self) -> None:
        await self._relations.stop()
        if self._policy is not None:
            await self._policy.stop()


class _EveryoneElse:
    """Allows everything to users that are not nodes."""

    def decide(self, request: AccessRequest) -> Decision:
        return ALLOWED if node_of(request.user) is None else NO_OPINION


# --- Node relations -------------------------------------------------------------------------------------------------
# Which objects belong to which node, from the stored pods and slices: the facts behind the node authorizer.


_OF_PODS: Final = frozenset(
    {"pods", "secrets", "configmaps", "persistentvolumeclaims", "serviceaccounts", "resourceclaims"}
)


class StoredRelations:
    """Follows pods and slices from the first question of a node on."""

    def __init__(self, store: Store) -> None:
        self._pods = StoreView(store, (prefix_of(POD),), _BoundPods)
        self._slices = StoreView(store, (prefix_of(RESOURCE_SLICE),), _NodeSlices)

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
            return self._slices.index.nodes.get(name) == node
        return node in self._pods.index.nodes.get((resource, namespace, name), ())


_EMPTY: Final = Raw(b"{}")


class _SliceSpec(Struct):
    node_name: str | None = field(default=None, name="nodeName")


class _Slice(Struct):
    spec: _SliceSpec


class _Metadata(Struct):
    annotations: Raw = _EMPTY


class _Status(Struct):
    claims: Raw = field(default=_EMPTY, name="resourceClaimStatuses")
    extended: Raw = field(default=_EMPTY, name="extendedResourceClaimStatus")


class _PodParts(Struct):
    """The parts of a pod that decide what it refers to, not decoded."""

    metadata: _Metadata
    spec: Raw = _EMPTY
    status: _Status = field(default_factory=_Status)

    def fingerprint(self) -> int:
        """Equal for pods that refer to the same objects: most changes of a pod are reports of its node."""
        status = self.status
        return hash(tuple(map(bytes, (self.metadata.annotations, self.spec, status.claims, status.extended))))


_SLICE: Final = msgspec.json.Decoder(_Slice)
_PARTS: Final = msgspec.json.Decoder(_PodParts)
_TREE: Final = msgspec.json.Decoder(dict[str, Any])

_Object = tuple[str, str, str]


class _BoundPod(Struct, frozen=True, gc=False):
    node: str
    objects: frozenset[_Object]


class _BoundPods(RecordIndex):
    """The objects that bound pods refer to, each with its nodes and the number of pods there."""

    def __init__(self) -> None:
        self.nodes: dict[_Object, dict[str, int]] = {}
        # With the fingerprint of the pod.
        self._of_pod: dict[str, tuple[int, _BoundPod]] = {}

    def _put(self, key: str, record: Record | None) -> None:
        known_as, before = self._of_pod.get(key, (0, None))
        parts = _PARTS.decode(record.value) if record is not None else None
        fingerprint = parts.fingerprint() if parts is not None else 0
        if before is not None and known_as == fingerprint:
            return
        if before is not None:
            del self._of_pod[key]
            self._forget(before)
        # Most pods without a node are recognized before they are decoded.
        if record is not None and parts is not None and b'"nodeName"' in bytes(parts.spec):
            now = _bound_pod(record)
            if now is not None:
                self._of_pod[key] = fingerprint, now
                for each in now.objects:
                    nodes = self.nodes.setdefault(each, {})
                    nodes[now.node] = nodes.get(now.node, 0) + 1

    def _forget(self, pod: _BoundPod) -> None:
        for each in pod.objects:
            nodes = self.nodes[each]
            nodes[pod.node] -= 1
            if not nodes[pod.node]:
                del nodes[pod.node]
                if not nodes:
                    del self.nodes[each]


class _NodeSlices(RecordIndex):
    """The node of each slice that belongs to one."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}

    def _put(self, key: str, record: Record | None) -> None:
        node = _SLICE.decode(record.value).spec.node_name if record is not None else ""
        if node:
            self.nodes[name_of(key)] = node
        else:
            self.nodes.pop(name_of(key), None)


def _bound_pod(record: Record) -> _BoundPod | None:
    key, pod = record.key, _TREE.decode(record.value)
    node = pod["spec"].get("nodeName")
    if not node:
        return None
    namespace = namespace_of(POD, key)
    objects = {("pods", namespace, name_of(key))}
    # A node creates mirror pods itself: they must not give it anything.
    if MIRROR_POD not in (pod["metadata"].get("annotations") or {}):
        objects |= {(resource, namespace, name) for resource, name in referred_objects(pod)}
    return _BoundPod(node, frozenset(objects))
