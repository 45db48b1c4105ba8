"""Evicts pods from tainted nodes when their tolerations end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final

from dralloc.client.event_recorder import Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.pod_disruption import disrupt
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.kube.core_v1 import Node, Taint
from dralloc.kube.node_taints import NO_EXECUTE, tolerates
from dralloc.kube.pod_v1 import Pod, Toleration
from dralloc.primitives.errors import NotFound

NAME: Final = "taint_eviction_controller"
EVENT_REASON: Final = "TaintManagerEviction"
DISRUPTION: Final = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
NODES: Final = resource_for(Node)
PODS: Final = resource_for(Pod)


@dataclass(frozen=True, slots=True)
class _Tainted:
    """A pod that will be evicted, and since when its node is tainted."""

    uid: str
    since: datetime


class NodeTaintEvictionController(Controller[ObjectKey, Pod]):
    """Keys and actions are pods."""

    queue_name: ClassVar[str] = NAME

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(NAME)
        self._recorder = context.recorder(NAME)
        self._clock = context.clock
        self._metrics = context.metrics
        self._tainted: dict[ObjectKey, _Tainted] = {}
        self._nodes = context.informers.informer_for(NODES)
        self._pods = context.informers.informer_for(PODS)
        self._nodes.subscribe(self._on_node)
        self._pods.subscribe(self._on_pod)

    def _on_node(self, before: Node | None, after: Node | None) -> None:
        if evicting_taints(before) != evicting_taints(after):
            node = after or before
            assert node is not None, "a change has an object"
            for pod in self._pods.by("node", node.metadata.name):
                self.queue.add(key_of(pod))

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if after is None:
            assert before is not None, "a change has an object"
            self._tainted.pop(key_of(before), None)
        elif before is None or before.spec.node_name != after.spec.node_name:
            if after.spec.node_name and evicting_taints(self._nodes.get(after.spec.node_name)):
                self.queue.add(key_of(after))
        elif before.spec.tolerations != after.spec.tolerations and key_of(after) in self._tainted:
            self.queue.add(key_of(after))

    async def plan(self, key: ObjectKey) -> PlannedActions[Pod]:
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or pod.is_terminating or pod.is_finished:
            self._tainted.pop(key, None)
            return PlannedActions()
        taints, now = evicting_taints(self._nodes.get(pod.spec.node_name)), self._clock.now()
        tainted = self._tainted.get(key)
        if tainted is None or tainted.uid != pod.metadata.uid:
            tainted = _Tainted(pod.metadata.uid, now)
        at = eviction_time(taints, pod.spec.tolerations, tainted.since) if taints else None
        if at is None:
            if self._tainted.pop(key, None) is not None:
                self._report(pod, f"Cancelling deletion of Pod {key}")
            return PlannedActions()
        self._tainted[key] = tainted
        return PlannedActions((pod,)) if at <= now else PlannedActions(look_again_s=(at - now).total_seconds())

    async def apply(self, action: Pod) -> None:
        """Read the pod first: the informer may be stale."""
        key = key_of(action)
        try:
            live = await self._calls.get(PODS, key)
            if live.metadata.uid == action.metadata.uid and not live.is_terminating:
                self._report(live, f"Marking for deletion Pod {key}")
                await disrupt(self._calls, live, *DISRUPTION, self._clock.now())
                self._metrics.node_taint_evictions.add()
        except NotFound:
            pass
        self._tainted.pop(key, None)

    def _report(self, pod: Pod, message: str) -> None:
        self._recorder.report(Report(reference_to(pod, PODS.api_version, PODS.kind), "Normal", EVENT_REASON, message))


# --- Plan -----------------------------------------------------------------------------------------------------------
# When a pod must leave its node because of taints with the effect NoExecute.


def evicting_taints(node: Node | None) -> tuple[Taint, ...]:
    taints = node.spec.taints if node is not None else ()
    return tuple(taint for taint in taints if taint.effect == NO_EXECUTE)


def eviction_time(taints: Iterable[Taint], tolerations: Sequence[Toleration], since: datetime) -> datetime | None:
    """When taints that are there since this time evict a pod with these tolerations; None if never.

    Of several tolerations of a taint, the first counts.
    """
    limits: list[int] = []
    for taint in taints:
        toleration = next((each for each in tolerations if tolerates(each, taint)), None)
        if toleration is None:
            return since
        if toleration.toleration_seconds is not None:
            limits.append(max(toleration.toleration_seconds, 0))
    try:
        return since + timedelta(seconds=min(limits)) if limits else None
    except OverflowError:
        # Later than the largest representable date.
        return None
