"""The what-if engine: pods are placed on a copy of a cluster by the scheduler's own cycle, and nothing is written.

Every placement is assumed before the next pod is decided, as in the scheduler. A claim that no pod uses is asked about with a
pod that is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dralloc.answers.api_refusals import ApiRefusals, priority_classes, priority_of, with_priority
from dralloc.answers.assumed_scheduler import scheduler_of
from dralloc.answers.blockers import (
    CLAIM_CREATION_EVENT,
    NOT_ALLOCATED,
    Blocker,
    Stage,
    binding_blockers,
    container_blockers,
    is_starting,
    latest_warning,
    node_blockers,
    queue_blockers,
)
from dralloc.answers.cluster_objects import ClusterObjects, exists, is_made_up
from dralloc.answers.object_changes import ObjectChange, apply_changes
from dralloc.answers.placements import PodPlacement, ShareIds, UnplacedPod
from dralloc.answers.pod_groups import DecideGang, PodGroups
from dralloc.answers.preemption_preview import PreemptionPreview
from dralloc.answers.scheduler_state import add_ephemeral_claims, replace_in, state_of
from dralloc.answers.template_claims import MissingTemplate, TemplateClaims, pod_for_claim
from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.diagnosis.reasons import availability, grouped
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.identity import ClaimId
from dralloc.kube.core_v1 import Event, Node
from dralloc.kube.pod_v1 import Pod, PodResourceClaim
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceClaimStatus
from dralloc.kube.timestamps import stated_time
from dralloc.scheduler.configuration import SchedulerConfiguration
from dralloc.scheduler.contract import CommittedPlacement, Decision, DecisionFailure, Placement, Rejection
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.node_reasons import reason_about_node, reason_of
from dralloc.scheduler.decide.node_verdicts import NodeVerdict, OutOfReach, Unfit
from dralloc.scheduler.decide.preemption import NoPreemption, PreemptionPlanner
from dralloc.scheduler.settings import ONLY_SCHEDULER_NAMES
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.placed_pods import claims_used_by

__all__ = ["Engine"]

# A controller that runs has made the claims of a pod of this age.
CLAIMS_CREATED_WITHIN: Final = timedelta(seconds=10)


class Engine:
    """Places pods one after the other, on `nodes` or on all; `only_node` restricts pods to one node.

    `scheduler_names` are the names of the scheduler that is asked about, `scheduler` its configuration, if it is known already (otherwise
    `assumed_scheduler` finds it). `cluster` is the state of the objects, if it exists already.
    `previews_preemption`: what is said about a pod that does not fit includes the pods that would be evicted for it.
    """

    def __init__(
        self,
        objects: ClusterObjects,
        now: datetime,
        *,
        nodes: Collection[Node] | None = None,
        only_node: str = "",
        scheduler_names: Collection[str] = ONLY_SCHEDULER_NAMES,
        cluster: ClusterState | None = None,
        previews_preemption: bool = False,
        scheduler: SchedulerConfiguration | None = None,
    ) -> None:
        self.objects = objects
        # The cycle's.
        self.gates = objects.gates_in_use
        self.features = objects.features.of_scheduler()
        self._scheduler = scheduler = scheduler or scheduler_of(objects, scheduler_names)
        self.cluster = cluster or state_of(
            objects, objects.nodes if nodes is None else nodes, class_settings=scheduler.class_settings
        )
        self.only_node = only_node
        self.now = now
        self._scheduler_names = scheduler_names
        self._for_workloads = "DRAReservedForWorkloads" in self.gates
        self._template_claims = TemplateClaims(objects)
        self._refusals = ApiRefusals(objects, self._template_claims)
        self.previews_preemption = previews_preemption
        self.cycle = Cycle(self.cluster, self.gates, strategies=scheduler.strategies)
        self.groups = PodGroups(self)
        # Claims in `cluster` that do not exist yet.
        self._expected: list[ResourceClaim] = []

    # --- One pod ----------------------------------------------------------------------------------------------------------

    def complete(self, pod: Pod) -> Pod:
        """The pod with its claims made, as the cycle expects it. Raises MissingTemplate."""
        completed, expected = self._template_claims.complete(pod)
        for claim in expected:
            claim_id = ClaimId.of(claim)
            if self.cluster.find_claim(claim_id) is None:
                self.cluster.claim_changed(None, claim)
                self._expected.append(claim)
                subject = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
                self.objects.notes.append(f"{subject}: claim {claim_id} does not exist yet; its template is used")
        add_ephemeral_claims(self.cluster.volumes, completed)
        return completed

    def create(self, obj: Pod | ResourceClaim) -> None:
        """Adds an object that the cluster does not have; quotas may refuse it, which its placement then says."""
        self._refusals.create(obj)
        if isinstance(obj, ResourceClaim):
            self.cluster.claim_changed(None, obj)
        else:
            self.groups.add(obj)

    def pod_for(self, claim: ResourceClaim) -> Pod:
        """A pod that uses the claim and requests nothing else."""
        pod = pod_for_claim(claim)
        return replace(pod, spec=replace(pod.spec, scheduler_name=min(self._scheduler_names)))

    def blockers(self, pod: Pod) -> tuple[Blocker, ...]:
        """What keeps the pod from running besides the scheduler's decision, in the order of the pod's life."""
        if pod.spec.node_name and not is_starting(pod):
            return tuple(container_blockers(pod))
        before = tuple(self._waiting_blockers(pod))
        node = self._node_blockers(pod) if pod.spec.node_name else ()
        return (*before, *self._binding_blockers(pod), *node)

    def reaches_scheduler(self, pod: Pod) -> bool:
        """True if the scheduler looks for a node for the pod."""
        return not pod.spec.node_name and not any(self._queue_blockers(pod))

    def _queue_blockers(self, pod: Pod) -> Iterator[Blocker]:
        """What keeps a pod without a node from the scheduler's queue."""
        if refused := self._refusals.of_pod(pod):
            reason = "QuotaExceeded" if refused.startswith("exceeded quota") else "PriorityRefused"
            yield Blocker(Stage.CREATION, reason, f"it would not be created: {refused}")
        yield from queue_blockers(pod, self._scheduler_names)

    def _waiting_blockers(self, pod: Pod) -> Iterator[Blocker]:
        """What keeps the pod from the scheduler; a pod that has a node needs its claims all the same."""
        if not pod.spec.node_name:
            yield from self._queue_blockers(pod)
        for entry in pod.spec.resource_claims:
            if (blocker := self._claim_blocker(pod, entry)) is not None:
                yield blocker

    def _claim_blocker(self, pod: Pod, entry: PodResourceClaim) -> Blocker | None:
        """Why the claim of the entry does not exist, and will not."""
        namespace, name = pod.metadata.namespace, entry.resource_claim_name
        if not name:
            try:
                claim = self._template_claims.expected(pod, entry)
            except MissingTemplate as error:
                return Blocker(Stage.CLAIMS, "TemplateMissing", str(error))
            if claim is None:
                return None
            name = claim.metadata.name
        if refused := self._refusals.of_claim(ClaimId(namespace, name)):
            return Blocker(Stage.CLAIMS, "QuotaExceeded", f"claim {namespace}/{name} is not created: {refused}")
        if entry.resource_claim_name or not exists(pod) or not self._is_overdue(pod):
            return None
        event = latest_warning(pod, self.objects.all(Event).values(), CLAIM_CREATION_EVENT)
        told = event.message if event is not None else "its template exists; is the controller running?"
        return Blocker(Stage.CLAIMS, "ClaimNotCreated", f"claim {entry.name} is not created: {told}")

    def _is_overdue(self, pod: Pod) -> bool:
        """True if the pod's claims would exist by now if a controller made them."""
        created = stated_time(pod.metadata.creation_timestamp)
        return created is not None and self.now - created > CLAIMS_CREATED_WITHIN

    def _binding_blockers(self, pod: Pod) -> Iterator[Blocker]:
        try:
            pod = self.complete(pod)
        except MissingTemplate:
            return iter(())
        return binding_blockers(pod, self.claims_of(pod), for_workloads=self._for_workloads)

    def _node_blockers(self, pod: Pod) -> Iterator[Blocker]:
        node = next((each for each in self.objects.nodes if each.metadata.name == pod.spec.node_name), None)
        return node_blockers(pod, node, self.objects.all(Event).values())

    def claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """The claims of a completed pod that exist, each once."""
        found = map(self.cluster.find_claim, claims_used_by(pod))
        return tuple(claim for claim in found if claim is not None)

    def decide(self, pod: Pod) -> Decision:
        """What the scheduler would decide about a completed pod."""
        return self.cycle.decide(self._pinned(pod), self.now)

    def verdicts(self, pod: Pod) -> Mapping[str, NodeVerdict]:
        """The verdict of every node on a completed pod; empty if the pod is rejected before any node is judged."""
        return self.cycle.verdicts(pod)

    def placement(self, pod: Pod) -> Placement | None:
        """What the scheduler would decide about a completed pod, if it is a placement."""
        return self.cycle.placement(self._pinned(pod), self.now)

    def preemption(self, pod: Pod) -> PreemptionPreview | None:
        """What the scheduler would evict for a completed pod that it rejects."""
        pod = with_priority(self._pinned(pod), priority_classes(self.objects))
        plan = PreemptionPlanner(self.cluster, self.cycle).plan(pod, self.now)
        if isinstance(plan, NoPreemption):
            return None
        return PreemptionPreview(plan, "DRAPreemption" in self.gates)

    def _pinned(self, pod: Pod) -> Pod:
        if not self.only_node or pod.spec.node_name:
            return pod
        return replace(pod, spec=replace(pod.spec, node_name=self.only_node))

    @contextmanager
    def trial(self, changes: Iterable[ObjectChange]) -> Iterator[Engine]:
        """Inside the block, an engine on the cluster with these changes. Raises InapplicableChange."""
        objects, replacements = apply_changes(self.objects, changes)
        if not objects.has_nodes:
            # The nodes are those that the objects name.
            yield Engine(
                objects,
                self.now,
                only_node=self.only_node,
                scheduler_names=self._scheduler_names,
                scheduler=self._scheduler,
            )
            return
        engine = Engine(
            objects,
            self.now,
            only_node=self.only_node,
            scheduler_names=self._scheduler_names,
            cluster=self.cluster,
            scheduler=self._scheduler,
        )
        if engine.gates == self.gates and not any(isinstance(old, DeviceClass) for old, _ in replacements):
            # Its verdicts follow all other changes.
            engine.cycle = self.cycle
        snapshot = self.cluster.snapshot
        # Those that are assumed to have devices stay.
        waiting = [claim for claim in self._expected if not self._has_devices(claim)]
        expected = [(claim, None) for claim in waiting]
        for old, new in (*expected, *replacements):
            replace_in(self.cluster, old, new)
        try:
            yield engine
        finally:
            made = [(claim, None) for claim in engine._expected]
            for old, new in (*made, *((new, old) for old, new in (*replacements, *expected))):
                replace_in(self.cluster, old, new)
            self.cluster.snapshot = snapshot

    def _has_devices(self, claim: ResourceClaim) -> bool:
        known = self.cluster.find_claim(ClaimId.of(claim))
        return known is not None and known.status.allocation is not None

    def misfit_of(self, pod: Pod) -> str:
        """Why a pod that has a node would not be placed there again; empty if it would be."""
        self.cluster.pod_changed(pod, None)
        verdict = self.verdicts(pod).get(pod.spec.node_name)
        self.cluster.pod_changed(None, pod)
        return str(reason_about_node(verdict)) if isinstance(verdict, Unfit | OutOfReach) else ""

    # --- One pod after the other ------------------------------------------------------------------------------------------

    def place(
        self, pod: Pod, decide: Callable[[Pod], Decision] | None = None, decide_gang: DecideGang | None = None
    ) -> PodPlacement | UnplacedPod:
        """What becomes of the pod, with its group if it has one. Placements are assumed: what follows gets what is left."""
        if pod.spec.node_name:
            return self._stay(pod)
        for blocker in self._waiting_blockers(pod):
            return UnplacedPod(pod, blocker.message, is_error=True)
        if (key := self.groups.key_of(pod)) is not None:
            return self.groups.place(key, pod, decide_gang)
        completed = self.complete(pod)
        decision = (decide or self.decide)(completed)
        while isinstance(decision, Rejection) and decision.deallocate is not None:
            # The scheduler does so, and tries again.
            self.deallocate(decision.deallocate)
            decision = (decide or self.decide)(completed)
        if isinstance(decision, Placement):
            return self.assume(completed, decision)
        message = self._message(completed, decision)
        if self.previews_preemption and isinstance(decision, Rejection):
            preview = self.preemption(completed)
            message = f"{message}; {preview.summary}" if preview is not None else message
        return UnplacedPod(pod, message, is_error=isinstance(decision, DecisionFailure))

    def deallocate(self, claim_id: ClaimId) -> None:
        """Takes the devices from a claim."""
        claim = self.cluster.find_claim(claim_id)
        assert claim is not None, "the claim was just judged"
        self.cluster.claim_changed(claim, None)
        self.cluster.claim_changed(None, replace(claim, status=ResourceClaimStatus()))

    def _stay(self, pod: Pod) -> PodPlacement | UnplacedPod:
        """A pod that has a node keeps it. The scheduler does not look at it, so that its claims get no devices any more."""
        if self.only_node not in ("", pod.spec.node_name):
            return UnplacedPod(pod, f"it is on node {pod.spec.node_name}")
        for blocker in (*self._waiting_blockers(pod), *self._binding_blockers(pod)):
            if blocker.stage is Stage.CLAIMS or blocker.reason == NOT_ALLOCATED:
                return UnplacedPod(pod, blocker.message, is_error=True)
        return PodPlacement(pod, pod.spec.node_name, self.claims_of(pod), frozenset())

    def assume(self, pod: Pod, placement: Placement) -> PodPlacement:
        """Counts the placement from now on."""
        committed = placement.commit(ShareIds(f"{pod.metadata.namespace}/{pod.metadata.name}"))
        self.cluster.assume(
            pod, committed.node, committed.allocations, committed.volumes, committed.extended, committed.needs
        )
        return self.placed(pod, committed)

    def placed(self, pod: Pod, committed: CommittedPlacement) -> PodPlacement:
        """The pod with a placement that is assumed."""
        if committed.extended is not None:
            pod = replace(pod, status=replace(pod.status, extended_resource_claim_status=committed.extended.status))
        claims = tuple(map(_without_made_up, self.claims_of(pod)))
        return PodPlacement(pod, committed.node, claims, committed.new)

    def _message(self, pod: Pod, decision: Rejection | DecisionFailure) -> str:
        """The decision's reason; where only one node is asked about, the reason of this node."""
        if not self.only_node or isinstance(decision, DecisionFailure):
            return decision.message
        verdict = self.verdicts(pod).get(self.only_node)
        if verdict is None:
            return decision.message
        waiting = [claim for claim in self.claims_of(pod) if claim.status.allocation is None]
        demand = compile_demand(waiting, self.cluster.classes, self.features)
        diagnoser = Diagnoser(demand, self.cluster.snapshot, tuple(map(ClaimId.of, waiting)))
        reason = reason_of(verdict, self.cluster.nodes[self.only_node], diagnoser)
        return availability(grouped([(self.only_node, reason)]), total=1)


def pods_by_priority(objects: ClusterObjects, namespace: str | None) -> Iterator[Pod]:
    """The pods that have not ended, in one namespace or in all, in the order in which the scheduler takes them."""
    classes = priority_classes(objects)

    def turn(pod: Pod) -> tuple[int, str]:
        return -priority_of(pod, classes), str(pod.metadata.creation_timestamp or "")

    for pod in sorted(objects.all(Pod).values(), key=turn):
        if not (pod.is_finished or pod.is_terminating) and namespace in (None, pod.metadata.namespace):
            yield pod


def _without_made_up(claim: ResourceClaim) -> ResourceClaim:
    """The claim without the time of the question, and without pods and workloads that have no UID of a server."""
    status = claim.status
    if status.allocation is not None and status.allocation.allocation_timestamp is not None:
        status = replace(status, allocation=replace(status.allocation, allocation_timestamp=None))
    real = tuple(reference for reference in status.reserved_for if not is_made_up(reference.uid))
    spec = claim.spec
    if spec.reserved_for is not None and is_made_up(spec.reserved_for.uid):
        spec = replace(spec, reserved_for=None)
    return replace(claim, spec=spec, status=replace(status, reserved_for=real))
