"""Applies a plan of moves, one after the other.

Before each move the cluster is read and the plan is made again, so that a move is never made for a state that has passed. What the plan
holds is tainted before the eviction, and released at the end, however the run ends. After the eviction, the runner waits for the pod
that the controller creates in its place, and checks that it got a node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace as change
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dralloc.answers.cluster_objects import PLACEMENT_NEEDED, PLACEMENT_USEFUL, ClusterObjects, StatedScheduler
from dralloc.answers.defrag import DefragPlan, DefragQuestion, plan_defrag
from dralloc.answers.live_cluster import read_cluster
from dralloc.answers.movable_pods import HOLD_KEY, PlaceHolds, device_hold, node_hold
from dralloc.answers.move_search import MovedPod, PlannedMove
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.status_errors import send_request
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.policy_v1 import PodDisruptionBudget
from dralloc.kube.resource_v1 import DeviceTaintRule
from dralloc.primitives.errors import AlreadyExists, Conflict, NotFound, TooManyRequests
from dralloc.primitives.features import FeatureGates

_PODS: Final = resource_for(Pod)
_NODES: Final = resource_for(Node)
_RULES: Final = resource_for(DeviceTaintRule)
_POLL_S: Final = 0.25
_KINDS: Final[frozenset[type[ApiObject]]] = frozenset({*PLACEMENT_NEEDED, *PLACEMENT_USEFUL, PodDisruptionBudget})
# What is kept of the metadata of a pod that no controller creates again.
_KEPT_METADATA: Final = ("name", "namespace", "labels", "annotations")


class MoveFailed(Exception):
    """A move did not end as planned; the message says what to do."""


class MoveRunner:
    """`tell` prints a line; a step may take `timeout_s`; `stated` is what is known about the scheduler from options."""

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        gates: FeatureGates,
        tell: Callable[[str], None],
        timeout_s: float,
        stated: StatedScheduler,
    ) -> None:
        self._transport = transport
        self._calls = ApiCalls(transport)
        self._namespace = namespace
        self._gates = gates
        self._tell = tell
        self._timeout_s = timeout_s
        self._stated = stated
        self._holds = PlaceHolds()

    async def run(self, question: DefragQuestion) -> int:
        """Makes the moves; returns how many pods were moved. Raises MoveFailed."""
        keys = [(pod.metadata.namespace, pod.metadata.name) for pod in question.targets]
        moved, expected = 0, -1
        try:
            while True:
                plan = await self._plan(question, keys, question.moves_max - moved)
                if plan.message:
                    raise MoveFailed(f"stopped after {moved} moves: {plan.message}")
                if expected not in (-1, plan.pods_moved):
                    self._tell(f"the cluster has changed: {plan.pods_moved} moves are left, not {expected}")
                if not plan.moves:
                    await self._place(plan)
                    return moved
                await self._move(plan.moves[0])
                moved += len(plan.moves[0].pods)
                expected = plan.pods_moved - len(plan.moves[0].pods)
        finally:
            await asyncio.shield(self._hold(PlaceHolds()))

    async def _plan(self, question: DefragQuestion, keys: Collection[tuple[str, str]], moves_max: int) -> DefragPlan:
        objects = ClusterObjects(self._gates, namespace=self._namespace, stated=self._stated)
        for found in (await read_cluster(self._transport, self._namespace, _KINDS)).values():
            objects.add_read(found)
        _remove_holds(objects)
        targets = [pod for key in keys if (pod := objects.all(Pod).get(key)) is not None]
        if len(targets) < len(keys):
            raise MoveFailed("a pod that room was made for is gone")
        waiting = [pod for pod in targets if not pod.spec.node_name]
        if targets and not waiting:
            return DefragPlan()
        return plan_defrag(objects, change(question, targets=waiting, moves_max=max(moves_max, 0)))

    # --- Moves ------------------------------------------------------------------------------------------------------------

    async def _move(self, move: PlannedMove) -> None:
        await self._hold(move.holds)
        known = {pod.metadata.uid for pod in await self._pods(move.pods[0].pod.metadata.namespace)}
        documents = [_as_new(await self._stored(each.pod)) for each in move.pods]
        for each in move.pods:
            await self._evict(each.pod)
        for each, document in zip(move.pods, documents, strict=True):
            found = await self._replaced(each, document, known)
            known.add(found.metadata.uid)
            place = "as planned" if found.spec.node_name == each.node else f"planned was {each.node}"
            self._tell(
                f"moved {key_of(each.pod)} from {each.pod.spec.node_name} to {found.spec.node_name} ({place}), "
                f"as {found.metadata.name}"
            )

    async def _evict(self, pod: Pod) -> None:
        async def is_accepted() -> bool:
            # Of the version that is read now: a restored backup may have brought the pod back elsewhere.
            metadata = (await self._stored(pod))["metadata"]
            version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
                "deleteOptions": {"preconditions": version},
            }
            try:
                await self._calls.post(_PODS, key_of(pod), "eviction", body)
            except (TooManyRequests, Conflict):
                return False
            except NotFound as error:
                raise _changed(pod, str(error)) from None
            return True

        await self._until(is_accepted, f"the disruption budget of pod {key_of(pod)} allows no eviction")

    async def _stored(self, pod: Pod) -> dict[str, Any]:
        """The pod of the plan with all its fields; raises MoveFailed if it is another one now, or elsewhere."""
        path = _PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name)
        try:
            stored: dict[str, Any] = msgspec.json.decode((await send_request(self._transport, "GET", path)).body)
        except NotFound as error:
            raise _changed(pod, str(error)) from None
        if stored["metadata"]["uid"] != pod.metadata.uid:
            raise _changed(pod, "it was created again")
        if stored["spec"].get("nodeName", "") != pod.spec.node_name:
            raise _changed(pod, f"it is on node {stored['spec'].get('nodeName', '')!r}")
        return stored

    async def _replaced(self, each: MovedPod, document: Mapping[str, Any], known: Collection[str]) -> Pod:
        """The pod that takes the place of the evicted one, once it has a node."""
        pod, owner = each.pod, controller_of(each.pod.metadata)
        found: list[Pod] = []

        async def is_placed() -> bool:
            if owner is None and not found:
                try:
                    found.append(await self._calls.create(_PODS, document, namespace=pod.metadata.namespace))
                except AlreadyExists:
                    return False
            for other in await self._pods(pod.metadata.namespace):
                theirs = controller_of(other.metadata)
                is_next = theirs is not None and owner is not None and theirs.uid == owner.uid
                if found and other.metadata.uid == found[0].metadata.uid:
                    found[0] = other
                elif is_next and not found and other.metadata.uid not in known:
                    found.append(other)
            return bool(found and found[0].spec.node_name)

        told = f"pod {key_of(pod)} was evicted, and its replacement has no node: see dralloc explain"
        await self._until(is_placed, told)
        return found[0]

    async def _place(self, plan: DefragPlan) -> None:
        """The pods that room was made for get it: they tolerate the holds of nodes, and those of devices end."""
        await self._hold(PlaceHolds(nodes=self._holds.nodes))
        for placed in plan.placed:
            pod = await self._calls.get(_PODS, key_of(placed.pod))
            toleration = {"key": HOLD_KEY, "operator": "Exists"}
            tolerations = [*msgspec.to_builtins(pod.spec.tolerations), toleration]
            if self._holds.nodes and not pod.spec.node_name:
                await self._calls.patch(_PODS, key_of(pod), {"spec": {"tolerations": tolerations}})
        for placed in plan.placed:

            async def has_node(key: ObjectKey = key_of(placed.pod)) -> bool:
                return bool((await self._calls.get(_PODS, key)).spec.node_name)

            await self._until(has_node, f"pod {key_of(placed.pod)} has no node: see dralloc explain")
            pod = await self._calls.get(_PODS, key_of(placed.pod))
            self._tell(f"{key_of(pod)} is on {pod.spec.node_name}")

    async def _until(self, is_so: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                while not await is_so():
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise MoveFailed(f"{otherwise} (waited {self._timeout_s:g} s)") from None

    async def _pods(self, namespace: str) -> list[Pod]:
        pods, _ = await self._calls.list_all(_PODS, namespace=namespace)
        return [pod for pod in pods if not pod.is_terminating]

    # --- PlaceHolds ------------------------------------------------------------------------------------------------------------

    async def _hold(self, wanted: PlaceHolds) -> None:
        """Changes what is held to what is wanted."""
        before, self._holds = self._holds, wanted | self._holds
        for name in sorted(wanted.nodes - before.nodes):
            await self.taint(name, is_held=True)
        for device in sorted(wanted.devices - before.devices):
            with contextlib.suppress(AlreadyExists):
                await self._calls.create(_RULES, device_hold(device))
        for name in sorted(before.nodes - wanted.nodes):
            await self.taint(name, is_held=False)
        for device in sorted(before.devices - wanted.devices):
            await self._delete_rule(device_hold(device).metadata.name)
        self._holds = wanted

    async def _delete_rule(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._calls.delete(_RULES, ObjectKey("", name))

    async def taint(self, name: str, *, is_held: bool) -> None:
        while True:
            node = await self._calls.get(_NODES, ObjectKey("", name))
            taints = [each for each in node.spec.taints if each.key != HOLD_KEY]
            taints += [node_hold()] if is_held else []
            if tuple(taints) == node.spec.taints:
                return
            version = {"resourceVersion": node.metadata.resource_version}
            patch = {"metadata": version, "spec": {"taints": msgspec.to_builtins(taints)}}
            try:
                await self._calls.patch(_NODES, ObjectKey("", name), patch)
                return
            except Conflict:
                continue

    async def release_all(self) -> int:
        """Ends the holds that a run which was killed has left; returns how many there were."""
        nodes, _ = await self._calls.list_all(_NODES)
        held = [node.metadata.name for node in nodes if any(each.key == HOLD_KEY for each in node.spec.taints)]
        for name in held:
            await self.taint(name, is_held=False)
        rules, _ = await self._calls.list_all(_RULES)
        ours = [rule.metadata.name for rule in rules if rule.spec.taint.key == HOLD_KEY]
        for name in ours:
            await self._delete_rule(name)
        return len(held) + len(ours)


def _as_new(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The pod as it can be created again, with all its fields."""
    metadata = {name: stored["metadata"][name] for name in _KEPT_METADATA if name in stored["metadata"]}
    spec = {name: value for name, value in stored["spec"].items() if name != "nodeName"}
    return {"metadata": metadata, "spec": spec}


def _changed(pod: Pod, how: str) -> MoveFailed:
    return MoveFailed(f"pod {key_of(pod)} has changed since the plan was made: {how}")


def _remove_holds(objects: ClusterObjects) -> None:
    """Plans are made for the cluster without their own holds."""
    for node in list(objects.all(Node).values()):
        taints = tuple(each for each in node.spec.taints if each.key != HOLD_KEY)
        if taints != node.spec.taints:
            objects.add(replace(node, spec=replace(node.spec, taints=taints)))
    for key, rule in list(objects.all(DeviceTaintRule).items()):
        if rule.spec.taint.key == HOLD_KEY:
            del objects.objects[DeviceTaintRule][key]
