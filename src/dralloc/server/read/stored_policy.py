"""The stored roles and bindings: keeps the RBAC authorizer up to date with the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

from dralloc.kube.codec import decode_again
from dralloc.kube.kind import Kind
from dralloc.kube.rbac_v1 import ClusterRole, Role, RoleBinding
from dralloc.kube.registry import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from dralloc.server.access.authorizer import AccessRequest, Decision
from dralloc.server.access.rbac import RbacAuthorizer, RulesOfUser
from dralloc.server.access.users import User
from dralloc.server.read.api_resources import prefix_of
from dralloc.server.read.store_view import RecordIndex, StoreView
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record

POLICY_KINDS: Final = (CLUSTER_ROLE, ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING)
_KINDS: Final = {prefix_of(kind): kind for kind in POLICY_KINDS}


class StoredPolicy:
    """Decides by the stored roles and bindings of one revision.

    A write through this server counts when it is acknowledged: the server answers after `ready`. Changes that come another way (other
    servers on the same etcd, garbage collection) count when the store delivers them.
    """

    def __init__(self, store: Store) -> None:
        self._cluster_roles_changed: Callable[[], None] = lambda: None
        self._view = StoreView(store, tuple(_KINDS), lambda: _PolicyIndex(self._note_cluster_roles))

    @property
    def rbac(self) -> RbacAuthorizer:
        return self._view.index.rbac

    @property
    def cluster_roles(self) -> list[ClusterRole]:
        return [item for item in self._view.index.objects.values() if isinstance(item, ClusterRole)]

    def on_cluster_roles(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of a ClusterRole."""
        self._cluster_roles_changed = changed

    async def ready(self) -> None:
        """Wait until decisions follow every change that the store has delivered."""
        await self._view.ready()

    def decide(self, request: AccessRequest) -> Decision:
        return self.rbac.decide(request)

    def rules_of(self, user: User, namespace: str) -> RulesOfUser:
        return self.rbac.rules_of(user, namespace)

    async def stop(self) -> None:
        await self._view.stop()

    def _note_cluster_roles(self) -> None:
        self._cluster_roles_changed()


class _PolicyIndex(RecordIndex):
    """The roles and bindings by key."""

    def __init__(self, cluster_roles_changed: Callable[[], None]) -> None:
        self.rbac = RbacAuthorizer()
        self.objects: dict[str, Role | RoleBinding] = {}
        self._cluster_roles_changed = cluster_roles_changed

    def replace(self, earlier: Self, revision: int) -> None:
        super().replace(earlier, revision)
        self._cluster_roles_changed()

    def _put(self, key: str, record: Record | None) -> None:
        before = self.objects.pop(key, None)
        if record is not None:
            item = self.objects[key] = _read(record)
            self.rbac.put(item)
        elif before is not None:
            self.rbac.remove(before)
        if _kind_of(key) is CLUSTER_ROLE:
            self._cluster_roles_changed()


def _kind_of(key: str) -> Kind:
    return _KINDS["/".join(key.split("/", 3)[:3]) + "/"]


def _read(record: Record) -> Role | RoleBinding:
    """Only the fields that decisions need: a role can have as many rules as fit into a request."""
    kind = _kind_of(record.key)
    assert kind.view is not None, "roles are modelled in part"
    item = decode_again(record.value, kind.view)
    assert isinstance(item, Role | RoleBinding), "the view of a role or binding"
    return item
