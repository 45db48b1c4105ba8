"""Finds nodes that are silent, and keeps the taints of nodes and the readiness of their pods as their conditions say."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar, Final, assert_never

import msgspec

from dralloc.client.api_calls import PatchType
from dralloc.client.event_recorder import Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.pod_disruption import patch_status
from dralloc.client.typed_resource import ObjectKey, key_of, version_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.node_lifecycle.plan import (
    READY,
    MarkPodsNotReady,
    MarkUnknown,
    NodeHealth,
    SetTaints,
    TokenBucket,
    ZoneId,
    ZoneRates,
    count_zones,
    is_changed,
    is_expired,
    needs_eviction,
    observe,
    pods_to_mark,
    ready_status,
    unknown_conditions,
    wanted_taints,
    zone_rates,
)
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.kube.coordination_v1 import NODE_LEASES, Lease, lease_name
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.timestamps import print_timestamp
from dralloc.primitives.errors import NotFound

_logger = logging.getLogger(__name__)

NAME: Final = "node_lifecycle_controller"
NODES: Final = resource_for(Node)
PODS: Final = resource_for(Pod)
LEASES: Final = resource_for(Lease)


@dataclass(frozen=True, slots=True)
class Monitor:
    """The key of the examination of all nodes."""


@dataclass(frozen=True, slots=True)
class SetRates:
    """The eviction rates of all zones changed."""

    rates: ZoneRates


Key = Monitor | ZoneId | str
Action = MarkUnknown | SetTaints | MarkPodsNotReady | SetRates


class NodeLifecycleController(Controller[Key, Action]):
    """Keys are the examination of all nodes, nodes by name, and zones, which bound how fast nodes get evicting taints."""

    queue_name: ClassVar[str] = NAME

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._settings = context.nodes
        self._calls = context.calls(NAME)
        self._recorder = context.recorder(NAME)
        self._clock = context.clock
        self._metrics = context.metrics
        self._health: dict[str, NodeHealth] = {}
        # The state of each node whose pods have been marked, so that they are marked once for each change.
        self._marked: dict[str, str] = {}
        self._rates = ZoneRates()
        self._buckets: defaultdict[ZoneId, TokenBucket] = defaultdict(TokenBucket)
        # Nodes that wait for an evicting taint, first come, first served.
        self._waiting: defaultdict[ZoneId, dict[str, None]] = defaultdict(dict)
        self._pods = context.informers.informer_for(PODS)
        self._leases = context.informers.informer_for(LEASES)
        self._nodes = context.informers.informer_for(NODES)
        self._nodes.subscribe(self._on_node)

    async def run(self) -> None:
        self.queue.add(Monitor())
        await super().run()

    def _on_node(self, before: Node | None, after: Node | None) -> None:
        node = after or before
        assert node is not None, "a change has an object"
        if before is None or after is None or before.spec != after.spec or before.status != after.status:
            self.queue.add(node.metadata.name)

    # --- Plan -----------------------------------------------------------------------------------------------------

    async def plan(self, key: Key) -> PlannedActions[Action]:
        match key:
            case Monitor():
                return self._plan_all()
            case ZoneId():
                return self._plan_zone(key)
            case str():
                return await self._plan_node(key)
        assert_never(key)

    def _plan_all(self) -> PlannedActions[Action]:
        """Look at all nodes; those that are silent are planned one by one."""
        nodes, now_s = self._nodes.all(), _now_s()
        self._health = {node.metadata.name: self._look_at(node, now_s) for node in nodes}
        for node in nodes:
            if (
                is_expired(self._health[node.metadata.name], node, self._settings, now_s)
                and ready_status(node) != "Unknown"
            ):
                self.queue.add(node.metadata.name)
        rates = zone_rates(count_zones(nodes), self._settings)
        actions = () if rates == self._rates else (SetRates(rates),)
        return PlannedActions(actions, look_again_s=self._settings.monitor_s)

    def _look_at(self, node: Node, now_s: float) -> NodeHealth:
        lease = self._leases.get(lease_name(node), NODE_LEASES)
        return observe(self._health.get(node.metadata.name), node, lease, now_s)

    async def _plan_node(self, name: str) -> PlannedActions[Action]:
        node = self._nodes.get(name)
        if node is None:
            self._marked.pop(name, None)
            return PlannedActions()
        if await self._is_silent(node) and (conditions := unknown_conditions(node, self._clock.now())):
            # The taints follow when the informer shows the conditions.
            return PlannedActions((MarkUnknown(node, conditions),))
        actions: list[Action] = []
        taints = wanted_taints(node, self._clock.now(), adds_eviction=False, is_halted=self._rates.is_halted)
        if is_changed(node, taints):
            actions.append(SetTaints(node, taints))
        elif needs_eviction(node):
            self._waiting[ZoneId.of(node)][name] = None
            self.queue.add(ZoneId.of(node))
        status = ready_status(node)
        if status != self._marked.get(name):
            is_ready = status in ("True", "")
            actions.append(MarkPodsNotReady(node, () if is_ready else pods_to_mark(self._pods.by("node", name))))
        return PlannedActions(actions)

    async def _is_silent(self, node: Node) -> bool:
        """True if the node's grace period is over, also by its lease as the server has it: the informer may be late."""
        name, now_s = node.metadata.name, _now_s()
        health = self._health.get(name)
        if health is None or not is_expired(health, node, self._settings, now_s):
            return False
        try:
            lease = await self._calls.get(LEASES, ObjectKey(NODE_LEASES, lease_name(node)))
        except NotFound:
            return True
        self._health[name] = observe(health, node, lease, now_s)
        return self._health[name] is health

    def _plan_zone(self, zone: ZoneId) -> PlannedActions[Action]:
        """The next node of the zone that gets an evicting taint, if the rate allows one now."""
        waiting = self._waiting[zone]
        while waiting:
            node = self._nodes.get(next(iter(waiting)))
            if node is not None and needs_eviction(node) and ZoneId.of(node) == zone:
                break
            waiting.pop(next(iter(waiting)))
        else:
            return PlannedActions()
        wait_s = self._buckets[zone].wait_s(self._rates.of(zone, self._settings), _now_s())
        if wait_s is None:
            # The next change of rates adds the zone again.
            return PlannedActions()
        if wait_s > 0:
            return PlannedActions(look_again_s=wait_s)
        taints = wanted_taints(node, self._clock.now(), adds_eviction=True, is_halted=False)
        return PlannedActions((SetTaints(node, taints, evicts=True),), look_again_s=0.0)

    # --- Apply ----------------------------------------------------------------------------------------------------

    async def apply(self, action: Action) -> None:
        match action:
            case MarkUnknown(node, conditions):
                await self._mark_unknown(node, conditions)
            case SetTaints():
                await self._set_taints(action)
            case MarkPodsNotReady():
                await self._mark_pods(action)
            case SetRates(rates):
                self._set_rates(rates)
            case _:
                assert_never(action)

    async def _mark_unknown(self, node: Node, conditions: tuple[dict[str, str], ...]) -> None:
        _logger.warning("node %s has been silent for more than %g s", node.metadata.name, self._settings.grace_s)
        # Optimistic: a node that writes its status now is not silent.
        patch = {"metadata": version_of(node), "status": {"conditions": list(conditions)}}
        await self._calls.patch(NODES, key_of(node), patch, type=PatchType.STRATEGIC, subresource="status")

    async def _set_taints(self, action: SetTaints) -> None:
        node, zone = action.node, ZoneId.of(action.node)
        patch = {"metadata": version_of(node), "spec": {"taints": action.taints or None}}
        await self._calls.patch(NODES, key_of(node), patch)
        if action.evicts:
            self._buckets[zone].taken_s = _now_s()
            self._waiting[zone].pop(node.metadata.name, None)
            self._metrics.node_evictions.add("/".join(filter(None, zone)))

    async def _mark_pods(self, action: MarkPodsNotReady) -> None:
        """The pods of a node that is not ready are not ready; services must not send requests to them."""
        node, status = action.node, ready_status(action.node)
        if self._marked.get(node.metadata.name) == "True" and status != "True":
            message = f"Node {node.metadata.name} status is now: NodeNotReady"
            self._report(node, "Node", "Normal", message)
        for pod in action.pods:
            entry = next(each for each in pod.status.conditions if each.type == READY)
            moment = print_timestamp(self._clock.now())
            changed = msgspec.structs.replace(entry, status="False", last_transition_time=moment)
            try:
                await patch_status(self._calls, pod, {"conditions": [changed]})
            except NotFound:
                continue
            self._report(pod, "Pod", "Warning", "Node is not ready")
        self._marked[node.metadata.name] = status

    def _report(self, about: Node | Pod, kind: str, type: str, message: str) -> None:
        self._recorder.report(Report(reference_to(about, "v1", kind), type, "NodeNotReady", message))

    def _set_rates(self, rates: ZoneRates) -> None:
        was_halted, self._rates = self._rates.is_halted, rates
        if rates.is_halted:
            _logger.warning("no node is ready: evictions are halted, because the fault is probably not in the nodes")
        if was_halted != rates.is_halted:
            now_s = _now_s()
            for node in self._nodes.all():
                name = node.metadata.name
                if was_halted and name in self._health:
                    # Nodes that were as silent as all others get a new grace period.
                    health = self._health[name]
                    self._health[name] = NodeHealth(health.uid, health.heartbeat, health.renewal, now_s)
                self.queue.add(name)
        for zone, waiting in self._waiting.items():
            if waiting:
                self.queue.add(zone)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
