"""The stored roles and bindings: keeps the RBAC authorizer up to date with the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from dralloc.access.access_request import AccessRequest
from dralloc.access.authorizer import Decision
from dralloc.access.rbac import RbacAuthorizer, RoleGrants, RulesOfUser
from dralloc.access.users import User
from dralloc.api.codec import decode_again
from dralloc.api.kind import Kind
from dralloc.api.rbac_v1 import ClusterRole, Role, RoleBinding
from dralloc.api.registry import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from dralloc.apiserver.http.flow_control import SIZE_INLINE_MAX
from dralloc.apiserver.objects.store_view import KindIndex, RecordReader
from dralloc.store.interface import Store
from dralloc.store.records import Record

# Roles first: a binding is of use only with its role.
POLICY_KINDS: Final = (CLUSTER_ROLE, ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING)


class StoredPolicy:
    """Decides by the stored roles and bindings.

    A write through this server counts when it is acknowledged: the server answers after `ready`. Changes that come another way (other
    servers on the same etcd, garbage collection) count when the store delivers them.
    """

    def __init__(self, store: Store) -> None:
        self.rbac = RbacAuthorizer()
        self._indexes = {kind.kind: _PolicyIndex(store, kind, self.rbac) for kind in POLICY_KINDS}

    @property
    def cluster_roles(self) -> list[ClusterRole]:
        objects = self._indexes[CLUSTER_ROLE.kind].objects.values()
        return [item for item in objects if isinstance(item, ClusterRole)]

    def on_cluster_roles(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of a ClusterRole."""
        self._indexes[CLUSTER_ROLE.kind].changed = changed

    async def ready(self) -> None:
        """Wait until decisions follow every change that the store has delivered."""
        for index in self._indexes.values():
            await index.ready()

    def decide(self, request: AccessRequest) -> Decision:
        return self.rbac.decide(request)

    def rules_of(self, user: User, namespace: str) -> RulesOfUser:
        return self.rbac.rules_of(user, namespace)

    async def stop(self) -> None:
        for index in self._indexes.values():
            await index.stop()


class _PolicyIndex(KindIndex):
    """The roles or bindings of one kind, by key."""

    def __init__(self, store: Store, kind: Kind, rbac: RbacAuthorizer) -> None:
        super().__init__(store, kind)
        self.objects: dict[str, Role | RoleBinding] = {}
        self.changed: Callable[[], None] | None = None
        self._rbac = rbac
        self._read = self._reader = RecordReader(partial(_read, kind))

    def _forget_all(self) -> None:
        for item in self.objects.values():
            self._rbac.remove(item)
        self.objects.clear()

    def _learn(self, key: str, record: Record | None) -> None:
        before = self.objects.pop(key, None)
        if record is not None:
            item, grants = self._read(record)
            self.objects[key] = item
            self._rbac.put(item, grants)
        elif before is not None:
            self._rbac.remove(before)
        if self.changed is not None:
            self.changed()


def _read(kind: Kind, record: Record) -> tuple[Role | RoleBinding, RoleGrants | None]:
    """Only the fields that decisions need: a role can have as many rules as fit into a request. A large one is indexed at once,
    because it is read in a thread.
    """
    assert kind.view is not None, "roles are modelled in part"
    item = decode_again(record.value, kind.view)
    assert isinstance(item, Role | RoleBinding), "the view of a role or binding"
    if isinstance(item, Role) and len(record.value) > SIZE_INLINE_MAX:
        return item, RoleGrants.indexed(item)
    return item, None
