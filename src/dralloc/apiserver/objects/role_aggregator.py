"""Fills ClusterRoles that have an `aggregationRule` with the rules of the roles that they select."""

from __future__ import annotations

import logging
from typing import Final

from dralloc.access.role_aggregation import aggregated_rules
from dralloc.access.users import ADMINS, User
from dralloc.api.rbac_v1 import ClusterRole, PolicyRule, rules_as_json
from dralloc.api.registry import CLUSTER_ROLE
from dralloc.api.unstructured_object import UnstructuredObject, view
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.http.query_options import WriteOptions
from dralloc.apiserver.objects.api_resources import ResourceTable, name_of
from dralloc.apiserver.objects.change_loop import ChangeLoop
from dralloc.apiserver.objects.patch_requests import applied_change
from dralloc.apiserver.objects.store_view import KindIndex
from dralloc.apiserver.objects.stored_form import from_stored
from dralloc.apiserver.objects.write_target import WriteTarget
from dralloc.apiserver.objects.writer import Writer
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.store.interface import Store
from dralloc.store.records import Record

MANAGER: Final = "clusterrole-aggregation-controller"
CONTROLLER: Final = User(name=f"system:serviceaccount:kube-system:{MANAGER}", groups=(ADMINS,))

_logger = logging.getLogger(__name__)


class RoleAggregator(KindIndex):
    """Follows all ClusterRoles from `start` on."""

    def __init__(self, store: Store, writer: Writer, resources: ResourceTable) -> None:
        super().__init__(store, CLUSTER_ROLE)
        self._resource = resources.hub(CLUSTER_ROLE)
        self._writer = writer
        self._roles: dict[str, ClusterRole] = {}
        self._loop = ChangeLoop(self._aggregate, does="aggregate cluster roles")

    async def start(self) -> None:
        """Fill the stored roles, then keep them up to date in the background."""
        await self.ready()
        await self._aggregate()
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        await super().stop()

    async def _aggregate(self) -> None:
        """Write the rules of all roles that aggregate."""
        for role in list(self._roles.values()):
            rules = aggregated_rules(role, self._roles.values())
            if rules is None or rules == role.rules:
                continue
            try:
                await self._write(role, rules)
            except NotFound:
                continue
            except ApiError as error:
                _logger.warning("cannot aggregate the cluster role %s: %s", role.metadata.name, error)

    async def _write(self, role: ClusterRole, rules: tuple[PolicyRule, ...]) -> None:
        """Apply the rules, as the controller of Kubernetes does: without any, those of other field managers stay."""
        target = WriteTarget(
            resource=self._resource, user=CONTROLLER, name=role.metadata.name, manager=MANAGER, manager_named=True
        )
        applied: Document = {"apiVersion": self._resource.api_version, "kind": CLUSTER_ROLE.kind}
        if rules:
            applied["rules"] = rules_as_json(rules)
        await self._writer.change(target, applied_change(self._writer, target, applied, WriteOptions(force=True)))

    def _forget_all(self) -> None:
        self._roles.clear()

    def _learn(self, key: str, record: Record | None) -> None:
        self._roles.pop(name_of(key), None)
        if record is not None:
            stored = from_stored(CLUSTER_ROLE, record.value)
            assert isinstance(stored, UnstructuredObject), "roles are modelled in part"
            self._roles[name_of(key)] = view(stored, ClusterRole)
        self._loop.wake()
