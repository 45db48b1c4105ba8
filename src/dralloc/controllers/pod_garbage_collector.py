"""Deletes pods of nodes that are gone, pods that are deleted and have no node to end them, and too many finished pods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final, assert_never

from dralloc.client.known_resources import resource_for
from dralloc.client.pod_disruption import disruption_target, patch_status
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.kube.core_v1 import Node
from dralloc.kube.node_taints import OUT_OF_SERVICE
from dralloc.kube.pod_v1 import FAILED, Pod
from dralloc.primitives.errors import Conflict, NotFound

# --- Plan -----------------------------------------------------------------------------------------------------------
# Which pods no node will ever end, or are too many to keep.


@dataclass(frozen=True, slots=True)
class DeleteGarbage:
    """Delete these pods at once. `why` is the label of the metric."""

    pods: tuple[Pod, ...]
    why: str


@dataclass(frozen=True, slots=True)
class DeleteOrphans:
    """Delete the pods of this node, if the server does not have the node either."""

    node: str


def missing_nodes(
    bound: Iterable[str], nodes: Mapping[str, Node], since_s: Mapping[str, float], now_s: float
) -> dict[str, float]:
    """The nodes that pods are bound to and that do not exist, and since when they are missing."""
    return {name: since_s.get(name, now_s) for name in bound if name not in nodes}


def stuck_reason(pod: Pod, node: Node | None) -> str:
    """Why a pod that is being deleted has no node that ends it; empty if it has, or if its node is not known."""
    if not pod.spec.node_name:
        return "unscheduled"
    if node is None or _is_ready(node):
        return ""
    return "out-of-service" if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints) else ""


def surplus(finished: Iterable[Pod], most: int) -> tuple[Pod, ...]:
    """The finished pods beyond this number: evicted pods first, then the oldest."""
    pods = list(finished)
    if len(pods) <= most:
        return ()
    pods.sort(
        key=lambda pod: (pod.status.reason != "Evicted", pod.metadata.creation_timestamp or "", pod.metadata.name)
    )
    return tuple(pods[: len(pods) - most])


def _is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


_logger = logging.getLogger(__name__)

NAME: Final = "pod_garbage_collector"
NODES: Final = resource_for(Node)
PODS: Final = resource_for(Pod)
_NODE_GONE: Final = ("DeletionByPodGC", "PodGC: node no longer exists")


@dataclass(frozen=True, slots=True)
class GarbageSearch:
    """The only key: a search through all pods."""


Action = DeleteGarbage | DeleteOrphans


class PodGarbageCollector(Controller[GarbageSearch, Action]):
    queue_name: ClassVar[str] = NAME
    workers: ClassVar[int] = 1

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._settings = context.nodes
        self._calls = context.calls(NAME)
        self._clock = context.clock
        self._metrics = context.metrics
        # Since when nodes that pods are bound to are missing.
        self._missing_s: dict[str, float] = {}
        self._nodes = context.informers.informer_for(NODES)
        self._pods = context.informers.informer_for(PODS)

    async def run(self) -> None:
        self.queue.add(GarbageSearch())
        await super().run()

    async def plan(self, key: GarbageSearch) -> PlannedActions[Action]:  # noqa: ARG002 - there is one key
        return PlannedActions(tuple(self._actions()), look_again_s=self._settings.garbage_s)

    def _actions(self) -> Iterator[Action]:
        now_s = asyncio.get_running_loop().time()
        nodes = {node.metadata.name: node for node in self._nodes.all()}
        bound = map(str, self._pods.values("node"))
        self._missing_s = missing_nodes(bound, nodes, self._missing_s, now_s)
        for name, since_s in self._missing_s.items():
            if now_s - since_s >= self._settings.quarantine_s:
                yield DeleteOrphans(name)
        for pod in self._pods.by("state", "terminating"):
            if why := stuck_reason(pod, nodes.get(pod.spec.node_name)):
                yield DeleteGarbage((pod,), why)
        if pods := surplus(self._pods.by("state", "finished"), self._settings.finished_pods_max):
            yield DeleteGarbage(pods, "terminated")

    async def apply(self, action: Action) -> None:
        match action:
            case DeleteGarbage(pods, why):
                for pod in pods:
                    await self._delete(pod, why, None)
            case DeleteOrphans(node):
                await self._delete_orphans(node)
            case _:
                assert_never(action)

    async def _delete_orphans(self, node: str) -> None:
        """Ask the server for the node first: the informer may be late."""
        try:
            await self._calls.get(NODES, ObjectKey("", node))
            return
        except NotFound:
            pods = tuple(self._pods.by("node", node))
        if pods:
            _logger.warning("node %s no longer exists: deleting its %d pods", node, len(pods))
        for pod in pods:
            await self._delete(pod, "orphaned", _NODE_GONE)

    async def _delete(self, pod: Pod, why: str, disruption: tuple[str, str] | None) -> None:
        """Mark the pod failed, because no node will say how it ended, and delete it without a grace period."""
        with suppress(NotFound, Conflict):
            if not pod.is_finished:
                conditions = [disruption_target(*disruption, self._clock.now())] if disruption is not None else []
                status = {"phase": FAILED, "conditions": conditions}
                pod = await patch_status(self._calls, pod, status)
            await self._calls.delete_unchanged(PODS, pod, grace_period_s=0)
            self._metrics.collected_pods.add(why)
