"""Groups of pods in a what-if: the members, and what the scheduler's gang cycle decides about them together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from dralloc.answers.api_refusals import priority_classes, with_priority
from dralloc.answers.cluster_objects import ClusterObjects, made_up_uid
from dralloc.answers.placements import PodPlacement, ShareIds, UnplacedPod
from dralloc.answers.preemption_preview import GangPreemptionPreview
from dralloc.answers.template_claims import MissingTemplate
from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import CommittedPlacement, DecisionFailure, Rejection
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.gang_cycle import GangCycle, GangDecision, GangPlacement, GangRejection, GangRequest
from dralloc.scheduler.decide.gang_preemption import plan_for_gang
from dralloc.scheduler.decide.preemption_candidates import VictimCandidates
from dralloc.scheduler.group_requests import GroupNotReady, GroupRequests
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.group_members import PodGroupKey, group_of

DecideGang = Callable[[GangRequest], GangDecision]


class PodEngine(Protocol):
    """What the engine knows of single pods."""

    objects: ClusterObjects
    cluster: ClusterState
    cycle: Cycle
    gates: FeatureGates
    now: datetime
    previews_preemption: bool

    def complete(self, pod: Pod) -> Pod: ...

    def reaches_scheduler(self, pod: Pod) -> bool: ...

    def deallocate(self, claim_id: ClaimId) -> None: ...

    def placed(self, pod: Pod, committed: CommittedPlacement) -> PodPlacement: ...


class PodGroups:
    """The groups of the pods that an engine knows. Like the engine, it assumes what it places."""

    def __init__(self, engine: PodEngine) -> None:
        self._engine = engine
        self._has_pod_groups = "GenericWorkload" in engine.gates
        # Of each group, the pods that have not ended, by name; made when the first group is asked about.
        self._members: dict[PodGroupKey, dict[str, Pod]] | None = None
        self._placed: dict[PodGroupKey, dict[str, PodPlacement | UnplacedPod]] = {}

    def key_of(self, pod: Pod) -> PodGroupKey | None:
        """None if the pod is scheduled by itself."""
        return group_of(pod, self._engine.cluster.find_claim, pod_groups=self._has_pod_groups)

    def members(self, key: PodGroupKey) -> tuple[Pod, ...]:
        """In the order in which the scheduler sees them."""
        return tuple(self._known().get(key, {}).values())

    def add(self, pod: Pod) -> None:
        """Adds a pod that was not among the objects."""
        if (key := self.key_of(pod)) is not None:
            self._known().setdefault(key, {})[pod.metadata.name] = pod

    def _known(self) -> dict[PodGroupKey, dict[str, Pod]]:
        if self._members is None:
            self._members = {}
            pods = self._engine.objects.all(Pod).values()
            for pod in sorted(pods, key=lambda each: str(each.metadata.creation_timestamp or "")):
                if not pod.is_finished and (key := self.key_of(pod)) is not None:
                    self._members.setdefault(key, {})[pod.metadata.name] = pod
        return self._members

    # --- What the scheduler is asked, and what it decides -----------------------------------------------------------

    def request(self, key: PodGroupKey) -> GangRequest | GroupNotReady:
        """What the scheduler is asked about the group now."""
        classes = priority_classes(self._engine.objects)
        members = [with_priority(self._completed(pod), classes) for pod in self.members(key)]
        waiting = {pod.metadata.uid for pod in members if self._engine.reaches_scheduler(pod)}
        known = [pod for pod in members if pod.spec.node_name or pod.metadata.uid in waiting]
        requests = GroupRequests(self._engine.cluster, self._engine.gates)
        return requests.request(key, known, tuple(pod for pod in known if pod.metadata.uid in waiting))

    def _completed(self, pod: Pod) -> Pod:
        try:
            return self._engine.complete(pod)
        except MissingTemplate:
            # The cycle rejects a pod without its claim.
            uid = pod.metadata.uid or made_up_uid(pod)
            return replace(pod, metadata=replace(pod.metadata, uid=uid))

    @contextmanager
    def tried(self, request: GangRequest) -> Iterator[GangDecision]:
        """Inside the block, the members that would get nodes have them."""
        decision = self._cycle(request).decide(request, self._engine.now)
        try:
            yield decision
        finally:
            self._forget(decision)

    def decide(self, request: GangRequest) -> GangDecision:
        """What the scheduler would decide about the gang."""
        with self.tried(request) as decision:
            return decision

    def settle(self, request: GangRequest) -> GangDecision:
        """Places the gang."""
        self.release(request)
        return self._cycle(request).decide(request, self._engine.now)

    def release(self, request: GangRequest) -> None:
        """Releases what members hold that cannot be placed with it, as the scheduler does before it tries again."""
        decision = self.decide(request)
        for useless in decision.release if isinstance(decision, GangRejection) else ():
            self._engine.deallocate(useless.claim_id)

    def _cycle(self, request: GangRequest) -> GangCycle:
        engine, first = self._engine, request.pods[0].metadata
        share_ids = ShareIds(f"{first.namespace}/{first.name}")
        return GangCycle(engine.cluster, engine.cycle, engine.gates, share_ids)

    def _forget(self, decision: GangDecision) -> None:
        for pod, committed in reversed(decision.placed) if isinstance(decision, GangPlacement) else ():
            self._engine.cluster.forget(pod, tuple(committed.allocations))

    def largest_part(self, request: GangRequest) -> GangRequest | None:
        """The request of the most members, fewer than the gang needs, that fit together; None if no member fits."""
        least, most = 0, request.needed - 1
        while least < most:
            middle = (least + most + 1) // 2
            if is_placed(self.decide(_needing(request, middle))):
                least = middle
            else:
                most = middle - 1
        return _needing(request, least) if least else None

    def preemption(self, request: GangRequest) -> GangPreemptionPreview | None:
        """What the scheduler would evict for a gang that it rejects."""
        cluster = self._engine.cluster
        plan = plan_for_gang(cluster, self._cycle(request), VictimCandidates(cluster), request, self._engine.now)
        return GangPreemptionPreview(plan, "DRAPreemption" in self._engine.gates) if plan is not None else None

    # --- One group after the other ----------------------------------------------------------------------------------

    def place(self, key: PodGroupKey, pod: Pod, decide: DecideGang | None = None) -> PodPlacement | UnplacedPod:
        """What becomes of the pod with its group. All members are placed when the first of them is asked about."""
        if key not in self._placed:
            self._placed[key] = self._place(key, decide or self.settle)
        return self._placed[key][pod.metadata.name]

    def _place(self, key: PodGroupKey, decide: DecideGang) -> dict[str, PodPlacement | UnplacedPod]:
        request = self.request(key)
        if isinstance(request, GroupNotReady):
            return {pod.metadata.name: UnplacedPod(pod, request.message, is_error=True) for pod in request.pods}
        decision = decide(request)
        if isinstance(decision, GangPlacement):
            placed = [(pod.metadata.name, self._engine.placed(pod, committed)) for pod, committed in decision.placed]
            return {**dict(placed), **dict(_refused(decision.others))}
        more = ""
        if self._engine.previews_preemption and (preview := self.preemption(request)) is not None:
            more = f"; {preview.summary}"
        return dict(_refused(decision.members, more))


def is_placed(decision: GangDecision) -> bool:
    """True if the members that the gang needs get nodes."""
    return isinstance(decision, GangPlacement) and bool(decision.placed)


def _needing(request: GangRequest, count: int) -> GangRequest:
    return dataclasses.replace(request, min_count=request.scheduled + count)


def _refused(
    members: Iterable[tuple[Pod, Rejection | DecisionFailure]], more: str = ""
) -> Iterator[tuple[str, UnplacedPod]]:
    for pod, refusal in members:
        message = f"{refusal.message}{more}"
        yield pod.metadata.name, UnplacedPod(pod, message, is_error=isinstance(refusal, DecisionFailure))
