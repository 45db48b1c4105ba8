"""Fills ClusterRoles that have an `aggregationRule` with the rules of the roles that they select."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from dralloc.kube.rbac_v1 import ClusterRole, PolicyRule, rules_as_json
from dralloc.kube.registry import CLUSTER_ROLE
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.server.access.default_policy import aggregated_rules
from dralloc.server.access.users import ADMINS, User
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.query_options import WriteOptions
from dralloc.server.read.api_resources import ResourceTable
from dralloc.server.read.background_task import ChangeLoop
from dralloc.server.read.stored_policy import StoredPolicy
from dralloc.server.write.patch_requests import applied_change
from dralloc.server.write.request_bodies import WriteTarget
from dralloc.server.write.writer import Writer

MANAGER: Final = "clusterrole-aggregation-controller"
CONTROLLER: Final = User(name=f"system:serviceaccount:kube-system:{MANAGER}", groups=(ADMINS,))

_logger = logging.getLogger(__name__)


class RoleAggregator:
    """Follows the ClusterRoles of the policy from `start` on."""

    def __init__(self, policy: StoredPolicy, writer: Writer, resources: ResourceTable) -> None:
        self._policy = policy
        self._resource = resources.hub(CLUSTER_ROLE)
        self._writer = writer
        self._loop = ChangeLoop(self._aggregate, does="aggregate cluster roles")

    async def start(self) -> None:
        """Fill the stored roles, then keep them up to date in the background."""
        self._policy.on_cluster_roles(self._loop.wake)
        await self._policy.ready()
        await self._aggregate()
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def _aggregate(self) -> None:
        """Write the rules of all roles that aggregate."""
        roles = self._policy.cluster_roles
        for role in roles:
            if role.aggregation_rule is None:
                continue
            rules = _changed_rules(role, roles)
            if rules is None:
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
        change = applied_change(self._writer, target, applied, WriteOptions(force=True))
        await self._writer.change(target, change)


def _changed_rules(role: ClusterRole, roles: Collection[ClusterRole]) -> tuple[PolicyRule, ...] | None:
    """The rules that the role must get; `None` if it has them, or aggregates nothing."""
    rules = aggregated_rules(role, roles)
    return None if rules == role.rules else rules
