"""How many more copies of a pod, a claim or a gang fit, where, what stops the next one, and what is free but of no use for it.

The engine places one copy after the other until it rejects one, so that the count is what the scheduler would do, not an
estimate. Pods that wait already and have at least the same priority come first, as in the scheduler's queue.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Final

from msgspec.structs import replace

from dralloc.answers.api_refusals import priority_classes, priority_of, with_group_priority
from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine, pods_by_priority
from dralloc.answers.manifest_cluster import UnusableManifest
from dralloc.answers.placements import PodPlacement, UnplacedPod
from dralloc.answers.template_claims import known_group
from dralloc.answers.workload_pods import add_workload_pods
from dralloc.devices.allocator.candidate_devices import matches_of
from dralloc.devices.allocator.diagnosis.device_funnel import Devices, Funnel, Hurdle, Spot, is_selection, spots
from dralloc.devices.allocator.diagnosis.device_survey import Survey
from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.diagnosis.obstacles import describe
from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonCause, ReasonGroup, grouped, text_of_loss
from dralloc.devices.allocator.requests import Alternative, compile_demand
from dralloc.devices.counters import CounterId
from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import VisiblePool
from dralloc.kube.apps_v1 import Deployment
from dralloc.kube.batch_v1 import Job
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_v1 import Pod, PodSchedulingGroup, PodStatus
from dralloc.kube.resource_v1 import ResourceClaim, ResourceClaimStatus, ResourceClaimTemplate
from dralloc.kube.scheduling_v1beta1 import PodGroup, PodGroupStatus
from dralloc.primitives.quantity import Quantity, quantity_like
from dralloc.scheduler.contract import Decision, Rejection
from dralloc.scheduler.decide.node_reasons import reason_of
from dralloc.scheduler.decide.node_verdicts import Fits, NodeVerdict, Unfit
from dralloc.scheduler.state.group_members import asked_min_count

# --- Gang copies ----------------------------------------------------------------------------------------------------
# Copies of a gang: a PodGroup with its pods, or the pods of an owner that asks for a gang.


@dataclass(frozen=True, slots=True)
class GangModel:
    """The pods of one gang; `group` is None if their owner is what they have in common."""

    metadata: ObjectMeta
    pods: tuple[Pod, ...]
    group: PodGroup | None = None

    @property
    def is_gang(self) -> bool:
        return self.group is None or self.group.is_gang


def gang_of(given: ClusterObjects) -> GangModel | None:
    """The one gang of the objects; None if they have none."""
    pods = tuple(given.all(Pod).values())
    groups = tuple(given.all(PodGroup).values())
    if len(groups) == 1:
        name = groups[0].metadata.name
        members = tuple(pod for pod in pods if pod.spec.scheduling_group == PodSchedulingGroup(pod_group_name=name))
        return GangModel(groups[0].metadata, members, groups[0]) if members else None
    owners = {owner.name for pod in pods for owner in pod.metadata.owner_references if owner.controller}
    if len(owners) == 1 and all(asked_min_count(pod) is not None for pod in pods):
        metadata = replace(pods[0].metadata, name=owners.pop())
        return GangModel(metadata, pods)
    return None


def copy_of(engine: Engine, model: GangModel, name: str) -> Iterator[Pod]:
    """The pods of a copy of the gang that is new to the engine's cluster."""
    if model.group is not None:
        metadata = ObjectMeta(name=name, namespace=model.metadata.namespace)
        group = known_group(replace(model.group, metadata=metadata, status=PodGroupStatus()))
        engine.objects.add(group)
        engine.cluster.group_changed(None, with_group_priority(group, priority_classes(engine.objects)))
    copies = [_member(pod, model, name) for pod in model.pods]
    for pod in copies:
        engine.create(pod)
    yield from copies


def _member(pod: Pod, model: GangModel, name: str) -> Pod:
    own = pod.metadata.name.removeprefix(f"{model.metadata.name}-")
    owners = tuple(replace(owner, name=name, uid=f"{owner.uid}/{name}") for owner in pod.metadata.owner_references)
    metadata = replace(
        pod.metadata,
        name=f"{name}-{own}",
        uid="",
        creation_timestamp=None,
        deletion_timestamp=None,
        owner_references=owners if model.group is None else pod.metadata.owner_references,
    )
    spec = replace(pod.spec, node_name="")
    if model.group is not None:
        spec = replace(spec, scheduling_group=PodSchedulingGroup(pod_group_name=name))
    return replace(pod, metadata=metadata, spec=spec, status=PodStatus())


__all__ = ["FitReport", "fit"]

COPIES_MAX: Final = 10_000

Model = Pod | ResourceClaim | GangModel


def take_model(given: ClusterObjects, objects: ClusterObjects) -> Model:
    """The one gang, pod, workload, claim or template of `given`; everything else of it is added to the objects.

    A claim that comes with a pod is one that the pod names. Claims that exist keep their state. Raises UnusableManifest.
    """
    kinds: tuple[type[ApiObject], ...] = (Pod, Job, Deployment, ResourceClaim, ResourceClaimTemplate)
    kind = next((kind for kind in kinds if given.all(kind)), Pod)
    models = given.all(kind)
    gang = gang_of(given) if kind is Pod else None
    if len(models) != 1 and gang is None:
        raise UnusableManifest(f"{given.place}: expected one pod or one claim, found {len(models) or 'none'}")
    if kind in (Job, Deployment):
        add_workload_pods(given)
    gang = gang or gang_of(given)
    (model,) = islice((given.all(Pod) or models).values(), 1)
    if isinstance(model, ResourceClaimTemplate):
        model = ResourceClaim(metadata=model.metadata, spec=model.spec.spec)
    if not isinstance(model, Pod | ResourceClaim):
        raise UnusableManifest(f"{given.place}: {model.kind.lower()} {model.metadata.name} has no pods")
    for other, found in given.objects.items():
        if other in (Pod, kind):
            continue
        for key, obj in found.items():
            if other is not ResourceClaim or key not in objects.all(ResourceClaim):
                objects.add(obj)
    return gang or model


@dataclass(frozen=True, slots=True)
class StrandedDevices:
    """Devices that suit the copies and have something free which no copy can use, all for the same reason.

    `free` has the capacities of devices and, for partitions, the counters that they draw from.
    """

    group: ReasonGroup
    nodes: tuple[str, ...]
    devices: tuple[DeviceId, ...]
    free: Mapping[str, Quantity]

    @property
    def reason(self) -> Reason:
        return self.group.reason

    @property
    def message(self) -> str:
        is_about_some = self.reason.cause is ReasonCause.NO_ATTRIBUTE
        return text_of_loss(self.reason) if is_about_some else str(self.reason)


@dataclass(frozen=True, slots=True)
class FitReport:
    """`by_node` has every node, also those that no copy fits on. Without a `message`, the count stopped at its limit.

    Of a gang, `by_node` has the pods, and `gangs` says how many copies they are.
    """

    model: Model
    by_node: Mapping[str, int]
    # Pods that waited for a node and were placed before the first copy.
    placed_first: int
    # The scheduler's words about the copy that was rejected.
    message: str = ""
    is_error: bool = False
    # Why each node takes no more; empty where the copy was rejected before any node was judged.
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    stranded: tuple[StrandedDevices, ...] = ()
    gangs: int | None = None

    @property
    def count(self) -> int:
        """How many more copies fit; of a gang, how many more gangs."""
        return self.pods if self.gangs is None else self.gangs

    @property
    def pods(self) -> int:
        """How many more pods fit."""
        return sum(self.by_node.values())

    @property
    def is_limited(self) -> bool:
        """True if the count ended at the maximum, not because the next copy does not fit."""
        return not self.message

    @property
    def groups(self) -> tuple[ReasonGroup, ...]:
        """Why the next copy does not fit, with the nodes for each reason."""
        return grouped(self.reasons.items())


def fit(engine: Engine, model: Model, copies_max: int = COPIES_MAX) -> FitReport:
    """Places copies of the model on the engine's cluster until one is rejected, or there are `copies_max`."""
    notes = len(engine.objects.notes)
    placed_first = _place_waiting(engine, model)
    by_node: Counter[str] = Counter(dict.fromkeys(sorted(engine.cluster.nodes), 0))
    if isinstance(model, GangModel):
        return _fit_gangs(engine, model, copies_max, FitReport(model, by_node, placed_first, gangs=0))
    for pod in _copies(engine, model, copies_max):
        placed = engine.place(pod)
        # That claims do not exist yet is no news about pods that are only assumed.
        del engine.objects.notes[notes:]
        if isinstance(placed, UnplacedPod):
            reasons, stranded = _after_rejection(engine, pod, placed)
            return FitReport(model, by_node, placed_first, placed.message, placed.is_error, reasons, stranded)
        by_node[placed.node] += 1
    return FitReport(model, by_node, placed_first)


def _fit_gangs(engine: Engine, model: GangModel, copies_max: int, report: FitReport) -> FitReport:
    """The report with the copies of the gang that get the nodes which it needs; all, where it is no gang."""
    by_node, notes = Counter(report.by_node), len(engine.objects.notes)
    for number, name in enumerate(islice(_new_names(engine.objects, model), copies_max)):
        answers = [engine.place(pod) for pod in copy_of(engine, model, name)]
        del engine.objects.notes[notes:]
        placed = [each.node for each in answers if isinstance(each, PodPlacement)]
        refused = [each for each in answers if isinstance(each, UnplacedPod)]
        if not placed or (refused and not model.is_gang):
            said, is_error = refused[0].message, refused[0].is_error
            return dataclasses.replace(report, by_node=by_node, gangs=number, message=said, is_error=is_error)
        by_node.update(placed)
    return dataclasses.replace(report, by_node=by_node, gangs=copies_max)


def _place_waiting(engine: Engine, model: Model) -> int:
    """Places the pods that the scheduler takes before new copies; returns how many get a node."""
    classes = priority_classes(engine.objects)
    first = model.pods[0] if isinstance(model, GangModel) else model
    priority = priority_of(first, classes) if isinstance(first, Pod) else 0
    waiting = (pod for pod in pods_by_priority(engine.objects, None) if not pod.spec.node_name)
    ahead = (pod for pod in waiting if priority_of(pod, classes) >= priority)

    def decide(pod: Pod) -> Decision:
        """Without reasons, which take longer than the decision; a rejection may have more to say about allocated claims."""
        has_allocated = any(claim.status.allocation is not None for claim in engine.claims_of(pod))
        return engine.placement(pod) or (engine.decide(pod) if has_allocated else Rejection("", frozenset()))

    return sum(isinstance(engine.place(pod, decide), PodPlacement) for pod in ahead)


# --- Copies ---------------------------------------------------------------------------------------------------------------


def _copies(engine: Engine, model: Pod | ResourceClaim, copies_max: int) -> Iterator[Pod]:
    """Pods that are new to the cluster. A claim's copy comes with a pod that uses it."""
    for name in islice(_new_names(engine.objects, model), copies_max):
        if isinstance(model, Pod):
            metadata = replace(model.metadata, name=name, uid="", creation_timestamp=None, deletion_timestamp=None)
            pod = replace(model, metadata=metadata, spec=replace(model.spec, node_name=""), status=PodStatus())
            engine.create(pod)
            yield pod
        else:
            metadata = ObjectMeta(name=name, namespace=model.metadata.namespace, labels=model.metadata.labels)
            claim = replace(model, metadata=metadata, status=ResourceClaimStatus())
            engine.create(claim)
            yield engine.pod_for(claim)


def _new_names(objects: ClusterObjects, model: Model) -> Iterator[str]:
    """The model's name with numbers that no pod and no claim has, nor a claim that was made for such a pod."""
    namespace, base = model.metadata.namespace, model.metadata.name
    numbered = re.compile(re.escape(base) + r"-(\d+)(-|$)")
    kinds: tuple[type[ApiObject], ...] = (Pod, ResourceClaim, PodGroup)
    names = [name for kind in kinds for space, name in objects.all(kind) if space == namespace]
    taken = {int(found[1]) for found in map(numbered.match, names) if found is not None}
    return (f"{base}-{number}" for number in count(1) if number not in taken)


# --- After the rejection --------------------------------------------------------------------------------------------------


def _after_rejection(
    engine: Engine, pod: Pod, rejected: UnplacedPod
) -> tuple[Mapping[str, Reason], tuple[StrandedDevices, ...]]:
    if rejected.is_error:
        # No node was asked, or an error on one of them stopped the attempt.
        return {}, ()
    completed = engine.complete(pod)
    verdicts = engine.verdicts(completed)
    waiting = [claim for claim in engine.claims_of(completed) if claim.status.allocation is None]
    demand = compile_demand(waiting, engine.cluster.classes, engine.features)
    diagnoser = Diagnoser(demand, engine.cluster.snapshot, tuple(map(ClaimId.of, waiting)))
    reasons = _reasons(engine, verdicts, diagnoser, rejected.message)
    if not waiting:
        return reasons, ()
    return reasons, tuple(_Stranding(engine, diagnoser.survey, verdicts, reasons).groups())


def _reasons(
    engine: Engine, verdicts: Mapping[str, NodeVerdict], diagnoser: Diagnoser, message: str
) -> dict[str, Reason]:
    """The reason of each node. Nodes that share a verdict share its diagnosis."""
    known: dict[int, Reason] = {}
    reasons: dict[str, Reason] = {}
    for name, verdict in verdicts.items():
        reason = known.get(id(verdict))
        if reason is None and isinstance(verdict, Fits):
            # An error elsewhere ends the attempt.
            reason = Reason(cause=ReasonCause.ERROR, subject=message)
        elif reason is None:
            reason = reason_of(verdict, engine.cluster.nodes[name], diagnoser)
        known[id(verdict)] = reasons[name] = reason
    return reasons


@dataclass(frozen=True, slots=True)
class _StrandedDevice:
    """A device of which something is free. `rank` says which of several nodes or requests tells the reason: the lowest."""

    rank: int
    node: str
    reason: Reason
    free: Mapping[str, Quantity]
    # The counter sets that the device draws from, where that is what is free of it.
    counter_sets: tuple[tuple[PoolId, str], ...] = ()


class _Stranding:
    """Sorts the free devices by the reason why no copy gets them.

    A device that no copy could get by itself is stranded by what it lacks, any other by the reason of its node.
    """

    def __init__(
        self, engine: Engine, survey: Survey, verdicts: Mapping[str, NodeVerdict], reasons: Mapping[str, Reason]
    ) -> None:
        self._engine = engine
        self._survey = survey
        self._verdicts = verdicts
        self._reasons = reasons

    def groups(self) -> Iterator[StrandedDevices]:
        found = self._devices()
        by_name = {str(device_id): device_id for device_id in found}
        counted: set[tuple[PoolId, str]] = set()
        for group in grouped((name, found[device_id].reason) for name, device_id in by_name.items()):
            devices = [by_name[name] for name in group.nodes]
            free: dict[str, Quantity] = {}
            for device in (found[device_id] for device_id in devices):
                # Partitions overlap: what is left of a counter set counts once.
                if device.counter_sets and counted.issuperset(device.counter_sets):
                    continue
                counted.update(device.counter_sets)
                for name, amount in device.free.items():
                    free[name] = free[name] + amount if name in free else amount
            nodes = tuple(dict.fromkeys(found[device_id].node for device_id in devices))
            yield StrandedDevices(group, nodes, tuple(devices), free)

    def _devices(self) -> dict[DeviceId, _StrandedDevice]:
        found: dict[DeviceId, _StrandedDevice] = {}
        for name in self._verdicts:
            place = self._engine.cluster.nodes[name].offer.place
            for alternative in self._survey.demand.alternatives:
                if alternative.is_admin:
                    continue
                funnel = self._survey.funnel(place, alternative)
                pools = {pool.pool_id: pool for pool in self._survey.view(place).pools}
                for rank, reason, devices in self._losses(name, place, funnel):
                    for spot in spots(devices):
                        known = found.get(spot.device_id)
                        if known is None or rank < known.rank:
                            stranded = self._stranded(spot, alternative, pools, rank, name, reason)
                            if stranded is not None:
                                found[spot.device_id] = stranded
        return found

    def _losses(self, name: str, place: NodeFacts, funnel: Funnel) -> Iterator[tuple[int, Reason, Iterable[Devices]]]:
        yield int(isinstance(self._verdicts[name], Unfit)), self._reasons[name], funnel.left
        for drop in funnel.drops:
            if drop.hurdle is Hurdle.IN_USE:
                continue
            devices: Iterable[Devices] = drop.devices
            if drop.hurdle is Hurdle.POOL:
                criteria = funnel.alternative.criteria
                devices = [
                    Devices(indexed, mask & matches_of(indexed, criteria).matched) for indexed, mask in drop.devices
                ]
            elif is_selection(drop.hurdle):
                continue
            # It is about these devices alone; how many others are left does not matter.
            yield 2, dataclasses.replace(describe(self._survey, place, funnel, drop), left=0), devices

    def _stranded(
        self,
        spot: Spot,
        alternative: Alternative,
        pools: Mapping[PoolId, VisiblePool],
        rank: int,
        node: str,
        reason: Reason,
    ) -> _StrandedDevice | None:
        """None if nothing of what the device would give is free."""
        survey, device = self._survey, spot.device
        is_shareable = bool(device.allow_multiple_allocations) and survey.features.consumable_capacity
        shares = survey.usage(spot).shares
        if survey.usage(spot).dedicated:
            return None
        pool = pools.get(spot.slice.pool_id)
        if spot.slice.counting >> spot.bit & 1 and not shares and pool is not None:
            left = survey.counters_left(pool)
            free: dict[str, Quantity] = {}
            for use in device.consumes_counters:
                for name, counter in use.counters.items():
                    amount = left.get(CounterId(use.counter_set, name))
                    if amount is None or not counter.value.nanos:
                        # The counters of an incomplete pool are unknown.
                        continue
                    if amount <= 0:
                        return None
                    available = quantity_like(counter.value, amount)
                    free[name] = free[name] + available if name in free else available
            sets = tuple((spot.slice.pool_id, use.counter_set) for use in device.consumes_counters)
            return _StrandedDevice(rank, node, reason, free, sets)
        if not is_shareable:
            whole = {name: capacity.value for name, capacity in device.capacity.items()}
            return _StrandedDevice(rank, node, reason, whole) if not shares else None
        charge = matches_of(spot.slice, alternative.criteria).charges[spot.bit]
        # A device that needs a feature which is off has no charge.
        amounts = zip(device.capacity.items(), survey.free(spot), charge.nanos, strict=False)
        taken = [(name, capacity.value, have) for (name, capacity), have, take in amounts if take > 0]
        if any(have <= 0 for _, _, have in taken):
            return None
        return _StrandedDevice(rank, node, reason, {name: quantity_like(value, have) for name, value, have in taken})
