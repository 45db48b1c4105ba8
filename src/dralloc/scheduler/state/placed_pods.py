"""Pods that have a node, or are assumed to get one: what they take from it and which claims they use."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from dralloc.api.pod_claims import claims_of
from dralloc.api.pod_v1 import Pod
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.state.node_state import EMPTY, Load
from dralloc.scheduler.state.pod_resources import PodResources

# Namespace and name.
PodKey = tuple[str, str]


def pod_key(pod: Pod) -> PodKey:
    return (pod.metadata.namespace, pod.metadata.name)


class PlacedPod(Struct, frozen=True, gc=False):
    uid: str
    node: str
    needs: PodResources
    # The claims that the pod uses, whether `reservedFor` lists it or not: a workload's pods are not listed.
    claims: tuple[ClaimId, ...]
    is_assumed: bool


class PlacedPods:
    """The sum of the pods on each node is kept for unknown nodes, too: a pod may be seen before its node."""

    def __init__(self) -> None:
        self._pods: dict[PodKey, PlacedPod] = {}
        self._users: dict[ClaimId, set[PodKey]] = {}
        self._loads: dict[str, Load] = {}

    def find(self, key: PodKey) -> PlacedPod | None:
        return self._pods.get(key)

    def load(self, node: str) -> Load:
        return self._loads.get(node, EMPTY)

    def is_in_use(self, claim_id: ClaimId) -> bool:
        return claim_id in self._users

    def put(self, key: PodKey, pod: PlacedPod) -> None:
        """Adds a pod that is not here."""
        assert key not in self._pods, f"{key} has a node already"
        self._pods[key] = pod
        for claim_id in pod.claims:
            self._users.setdefault(claim_id, set()).add(key)
        self._loads[pod.node] = self.load(pod.node).plus(pod.needs)

    def confirm(self, key: PodKey) -> None:
        """Records that the API shows the pod on the node that was assumed."""
        self._pods[key] = replace(self._pods[key], is_assumed=False)

    def remove(self, key: PodKey) -> PlacedPod:
        pod = self._pods.pop(key)
        for claim_id in pod.claims:
            users = self._users[claim_id]
            users.remove(key)
            if not users:
                del self._users[claim_id]
        self._loads[pod.node] = self.load(pod.node).minus(pod.needs)
        return pod


def claims_used_by(pod: Pod) -> tuple[ClaimId, ...]:
    """The pod's claims, each once: several entries may name the same claim."""
    return tuple(dict.fromkeys(ClaimId(pod.metadata.namespace, use.claim) for use in claims_of(pod)))
