"""Pods that have a node, or are assumed to get one: what they take from it and which claims they use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import count

from msgspec import Struct

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_claims import claims_of
from dralloc.kube.pod_v1 import Pod
from dralloc.scheduler.state.node_state import EMPTY, Load
from dralloc.scheduler.state.pod_resources import PodResources

# Namespace and name.
PodKey = tuple[str, str]


def pod_key(pod: Pod) -> PodKey:
    return (pod.metadata.namespace, pod.metadata.name)


def nomination_key(pod: Pod) -> PodKey:
    """The key of a pod that is counted on its nominated node. No pod that has a node has such a key."""
    return ("", pod.metadata.uid)


class PlacedPod(Struct, frozen=True, gc=False):
    pod: Pod
    node: str
    needs: PodResources
    # The claims that the pod uses, whether `reservedFor` lists it or not: a workload's pods are not listed.
    claims: tuple[ClaimId, ...]
    is_assumed: bool = False
    # The pod waits until other pods have left its node.
    is_nominated: bool = False

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0


class PlacedPods:
    """The sum of the pods on each node is kept for unknown nodes, too: a pod may be seen before its node."""

    def __init__(self) -> None:
        self._pods: dict[PodKey, PlacedPod] = {}
        self._users: dict[ClaimId, set[PodKey]] = {}
        self._loads: dict[str, Load] = {}
        self._on_nodes: dict[str, dict[PodKey, PlacedPod]] = {}
        # The number of pods by priority.
        self._priorities: Counter[int] = Counter()
        # The number of the last change of the pods of each node that has any, and the pods that are terminating.
        self.revisions: Counter[str] = Counter()
        self._numbers = count(1)
        self.terminating: dict[PodKey, PlacedPod] = {}

    def on_node(self, node: str) -> Mapping[PodKey, PlacedPod]:
        return self._on_nodes.get(node, {})

    def by_node(self) -> Mapping[str, Mapping[PodKey, PlacedPod]]:
        """The pods of every node that has any."""
        return self._on_nodes

    def users(self, claim_id: ClaimId) -> Collection[PodKey]:
        """The pods that use the claim."""
        return self._users.get(claim_id, ())

    @property
    def lowest_priority(self) -> int | None:
        """None if there are no pods."""
        return min(self._priorities, default=None)

    def find(self, key: PodKey) -> PlacedPod | None:
        return self._pods.get(key)

    def load(self, node: str) -> Load:
        return self._loads.get(node, EMPTY)

    def is_in_use(self, claim_id: ClaimId) -> bool:
        return claim_id in self._users

    def put(self, key: PodKey, pod: PlacedPod) -> None:
        """Adds a pod that is not here."""
        assert key not in self._pods, f"{key} has a node already"
        self._set(key, pod)
        self._count_priority(pod.priority, 1)
        for claim_id in pod.claims:
            self._users.setdefault(claim_id, set()).add(key)
        self._loads[pod.node] = self.load(pod.node).plus(pod.needs)

    def confirm(self, key: PodKey, pod: Pod) -> None:
        """Takes the newest version of a pod that the API shows on its node."""
        known = self._pods[key]
        newest = PlacedPod(pod, known.node, known.needs, known.claims)
        self._set(key, newest)
        if newest.priority != known.priority:
            self._count_priority(known.priority, -1)
            self._count_priority(newest.priority, 1)

    def remove(self, key: PodKey) -> PlacedPod:
        pod = self._pods.pop(key)
        self.terminating.pop(key, None)
        del self._on_nodes[pod.node][key]
        self._count_priority(pod.priority, -1)
        for claim_id in pod.claims:
            users = self._users[claim_id]
            users.remove(key)
            if not users:
                del self._users[claim_id]
        if self._on_nodes[pod.node]:
            self.revisions[pod.node] = next(self._numbers)
            self._loads[pod.node] = self.load(pod.node).minus(pod.needs)
        else:
            del self._on_nodes[pod.node], self.revisions[pod.node], self._loads[pod.node]
        return pod

    def _set(self, key: PodKey, pod: PlacedPod) -> None:
        self._pods[key] = pod
        self._on_nodes.setdefault(pod.node, {})[key] = pod
        self.revisions[pod.node] = next(self._numbers)
        if pod.pod.is_terminating:
            self.terminating[key] = pod

    def _count_priority(self, priority: int, by: int) -> None:
        self._priorities[priority] += by
        if not self._priorities[priority]:
            del self._priorities[priority]


def claims_used_by(pod: Pod) -> tuple[ClaimId, ...]:
    """The pod's claims, each once: several entries may name the same claim."""
    return tuple(dict.fromkeys(ClaimId(pod.metadata.namespace, use.claim) for use in claims_of(pod)))
