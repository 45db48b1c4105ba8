"""Simulates a trace in virtual time: each pod is decided by the scheduler's own cycle, on a copy of the cluster's state.

A pod that no node can take waits. It is tried again when something happens that its rejection names, such as the end of another
pod, in the order of arrival; pods with equal requirements are tried until the first is rejected, as in the scheduler's queue.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final, TypeVar

from msgspec.structs import replace

from dralloc.devices.allocator.features import Features
from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import AllocationResult, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import ClusterView, DecisionFailure, Placement, Rejection
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.placement_strategy import PlacementStrategy
from dralloc.scheduler.decide.strategy_choice import StrategySettings
from dralloc.scheduler.decide.typical_pods import TypicalPods
from dralloc.scheduler.report.fragmentation import Fragmentation
from dralloc.scheduler.report.stranded_devices import StrandedCause
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.study.cluster import Cluster
from dralloc.study.device_meter import DeviceMeter
from dralloc.study.pod_factory import ArrivingPod, PodFactory
from dralloc.study.room_plans import PodName, RoomPlan, RoomPlanner, name_of
from dralloc.study.run import Columns, Run, RunSetting
from dralloc.study.scaled_arrivals import scaled_trace
from dralloc.study.strategies import strategy_of
from dralloc.study.trace import Trace

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_REPORTED_EVERY: Final = 50
# How often idle devices are looked at in a run: it takes as long as some decisions.
SAMPLES: Final = 40

_Answer = TypeVar("_Answer")


def simulate(
    trace: Trace,
    cluster: Cluster,
    strategy: str | PlacementStrategy = "Spread",
    *,
    seed: int = 42,
    load: float | None = None,
    moves_max: int = 0,
    report: Callable[[int], None] | None = None,
) -> Run:
    """Places the pods of the trace on the cluster, one after the other, and returns what became of them.

    `strategy`: the name of one of the scheduler's strategies, or a strategy of your own; the pods of the trace are typical. `seed` orders equally good nodes. With
    `load`, pods arrive in a random order, so many that they request this multiple of the cluster's devices, and none leaves.
    With `moves_max`, at most so many pods are moved to make room for one that no node can take, as `dralloc defrag` would plan it.
    `report` gets the number of pods that were decided since its last call. Raises BadInput.
    """
    chosen = strategy_of(strategy)
    factory = PodFactory(trace, cluster)
    state = cluster.state(trace, seed)
    meter = DeviceMeter(state.snapshot, cluster.measured_driver)
    if load is not None:
        trace = scaled_trace(trace, factory, meter.capacity_milli, load, seed)
    setting = RunSetting(trace.name, cluster.name, chosen.name, seed, load)
    stranding = StrandingSamples(state, cluster.measured_driver, map(factory.make, trace.arrivals))
    strategies = StrategySettings(default=chosen, typical=stranding.typical.counted())
    planner = RoomPlanner(cluster, trace, moves_max, strategies) if moves_max else None
    simulation = _Simulation(state, strategies, meter, planner)
    sampled_every = max(1, len(trace.arrivals) // SAMPLES)
    for number, arrival in enumerate(trace.arrivals, start=1):
        simulation.arrive(factory.make(arrival))
        if number % sampled_every == 0 or number == len(trace.arrivals):
            stranding.take(number, arrival.at_s)
        if report is not None and number % _REPORTED_EVERY == 0:
            report(_REPORTED_EVERY)
    simulation.finish()
    if report is not None:
        report(len(trace.arrivals) % _REPORTED_EVERY)
    return simulation.result(setting, stranding.columns, factory.notes, has_departures=trace.has_departures)


@dataclass(slots=True)
class _PodFate:
    """What became of a pod."""

    pod: ArrivingPod
    node: str | None = None
    placed_s: float | None = None
    left_s: float | None = None
    reason: str = ""
    claims: tuple[ClaimId, ...] = ()


@dataclass(slots=True)
class _WaitingGroup:
    """Pods that get the same answer, in the order of arrival, and what may change it."""

    waits_for: frozenset[ClusterEvent] = frozenset()
    pods: deque[int] = field(default_factory=deque)


class _Simulation:
    def __init__(
        self, state: ClusterState, strategies: StrategySettings, meter: DeviceMeter, planner: RoomPlanner | None
    ) -> None:
        self._state = state
        self._cycle = Cycle(state, FeatureGates.defaults(), strategies=strategies)
        self._meter = meter
        self._now_s = 0.0
        self._fates: list[_PodFate] = []
        # When each placed pod leaves, with its number.
        self._departures: list[tuple[float, int]] = []
        self._waiting: dict[bytes | int, _WaitingGroup] = {}
        self._waiting_count = self._running = self._arrived_milli = 0
        # The number of pods that use each claim that several pods may share.
        self._users: dict[ClaimId, int] = {}
        self._steps: Columns = {
            name: [] for name in ("arrival", "time_s", "arrived_milli", "allocated_milli", "running", "waiting")
        }
        self._decisions = self._shares = 0
        self._planner = planner
        # Pods that no moves make room for, by equivalence, until a pod leaves or is moved.
        self._hopeless: set[bytes | None] = set()
        self._numbers: dict[PodName, int] = {}
        self._moves = 0
        self._decide_s = 0.0

    # --- Events -----------------------------------------------------------------------------------------------------

    def arrive(self, pod: ArrivingPod) -> None:
        self._advance(pod.arrival.at_s)
        self._now_s = pod.arrival.at_s
        number = len(self._fates)
        self._fates.append(_PodFate(pod))
        self._numbers[name_of(pod.pod)] = number
        self._arrived_milli += pod.requested_milli
        for claim in (*pod.claims, *(each for each in pod.shared if self._is_new(each))):
            self._state.claim_changed(None, claim)
        if (rejection := self._decide(number)) is not None and not self._make_room(number, rejection):
            self._wait(number, rejection)
        self._add_step()

    def finish(self) -> None:
        """Lets time pass until no pod that leaves is left."""
        self._advance(float("inf"))

    def _is_new(self, claim: ResourceClaim) -> bool:
        return self._state.find_claim(ClaimId.of(claim)) is None

    def _advance(self, until_s: float) -> None:
        while self._departures and self._departures[0][0] <= until_s:
            self._now_s = self._departures[0][0]
            events: set[ClusterEvent] = set()
            while self._departures and self._departures[0][0] == self._now_s:
                events.update(self._leave(heappop(self._departures)[1]))
            self._retry(frozenset(events))

    def _leave(self, number: int) -> Iterable[ClusterEvent]:
        fate = self._fates[number]
        fate.left_s = self._now_s
        self._hopeless.clear()
        self._running -= 1
        events = [*self._state.pod_changed(fate.pod.pod, None)]
        freed: list[AllocationResult] = []
        shared = {ClaimId.of(claim): claim for claim in fate.pod.shared}
        for claim_id in fate.claims:
            self._users[claim_id] -= 1
            known = self._state.find_claim(claim_id)
            if self._users[claim_id] or known is None:
                continue
            if known.status.allocation is not None:
                freed.append(known.status.allocation)
            events += self._state.claim_changed(known, None)
            if claim_id in shared:
                # A claim that pods share outlives them, without devices.
                events += self._state.claim_changed(None, shared[claim_id])
        self._meter.update(self._state.snapshot, freed)
        return events

    # --- Decisions --------------------------------------------------------------------------------------------------

    def _decide(self, number: int) -> Rejection | DecisionFailure | None:
        """Places the pod, or returns why no node takes it."""
        fate = self._fates[number]
        decision = self._timed(self._cycle.decide, number)
        if not isinstance(decision, Placement):
            fate.reason = decision.message
            return decision
        self._place(number, decision)
        return None

    def _timed(self, ask: Callable[[Pod, datetime], _Answer], number: int) -> _Answer:
        start = time.process_time()
        answer = ask(self._fates[number].pod.pod, _START + timedelta(seconds=self._now_s))
        self._decide_s += time.process_time() - start
        self._decisions += 1
        return answer

    def _place(self, number: int, placement: Placement) -> None:
        self._assume(number, placement)
        self._begin(number)

    def _assume(self, number: int, placement: Placement) -> None:
        fate = self._fates[number]
        pod = fate.pod.pod
        committed = placement.commit(self._new_share_id)
        self._state.assume(
            pod, committed.node, committed.allocations, committed.volumes, committed.extended, committed.needs
        )
        self._meter.update(self._state.snapshot, committed.allocations.values())
        # With the claim that is made for extended resources.
        fate.claims = tuple(committed.allocations)
        for claim_id in fate.claims:
            self._users[claim_id] = self._users.get(claim_id, 0) + 1
        fate.node = committed.node

    def _begin(self, number: int) -> None:
        """From now on the pod runs, until it leaves."""
        fate = self._fates[number]
        fate.placed_s, fate.reason = self._now_s, ""
        self._running += 1
        duration_s = fate.pod.arrival.duration_s
        if duration_s is not None:
            heappush(self._departures, (self._now_s + duration_s, number))

    def _new_share_id(self) -> str:
        self._shares += 1
        return f"share-{self._shares}"

    def _wait(self, number: int, rejection: Rejection | DecisionFailure) -> None:
        if isinstance(rejection, DecisionFailure):
            return
        key = rejection.equivalence_key
        group = self._waiting.setdefault(number if key is None else key, _WaitingGroup())
        group.waits_for = group.waits_for | rejection.waits_for if group.pods else rejection.waits_for
        group.pods.append(number)
        self._waiting_count += 1

    def _retry(self, events: frozenset[ClusterEvent]) -> None:
        """Tries the waiting pods that these events may help, the oldest first."""
        order = {group.pods[0]: key for key, group in self._waiting.items() if not group.waits_for.isdisjoint(events)}
        heap = list(order)
        heapify(heap)
        while heap:
            number = heappop(heap)
            key = order.pop(number)
            group = self._waiting[key]
            # The reason is that of the first attempt: finding it costs more than a decision.
            placement = self._timed(self._cycle.placement, number)
            if placement is None:
                continue
            self._place(number, placement)
            group.pods.popleft()
            self._waiting_count -= 1
            if group.pods:
                order[group.pods[0]] = key
                heappush(heap, group.pods[0])
            else:
                del self._waiting[key]

    # --- Moves ------------------------------------------------------------------------------------------------------

    def _make_room(self, number: int, rejection: Rejection | DecisionFailure) -> bool:
        """Moves pods so that this one can be placed. True if it is placed."""
        if (
            self._planner is None
            or isinstance(rejection, DecisionFailure)
            or rejection.equivalence_key in self._hopeless
        ):
            return False
        placed = [(fate.pod, fate.node) for fate in self._fates if fate.node is not None and fate.left_s is None]
        plan = self._planner.plan(self._state, placed, self._fates[number].pod)
        if plan is None or not self._move(number, plan):
            self._hopeless.add(rejection.equivalence_key)
            return False
        self._hopeless.clear()
        self._begin(number)
        self._moves += len(plan.moves)
        return True

    def _move(self, number: int, plan: RoomPlan) -> bool:
        """Carries out the plan, or nothing of it if a pod does not fit where the plan has it."""
        moved = [self._numbers[name] for name in plan.moves if name in self._numbers]
        if len(moved) < len(plan.moves) or any(not self._is_movable(each) for each in moved):
            return False
        before = {each: (self._fates[each].node, self._remove(each)) for each in moved}
        nodes = {number: plan.node, **dict(zip(moved, plan.moves.values(), strict=True))}
        for done, (each, node) in enumerate(nodes.items()):
            if not self._place_on(each, node):
                for other in list(nodes)[:done]:
                    self._remove(other)
                for other, (home, allocations) in before.items():
                    self._restore(other, home or "", allocations)
                return False
        return True

    def _is_movable(self, number: int) -> bool:
        """True if all claims are the pod's own."""
        fate = self._fates[number]
        return set(fate.claims) == set(map(ClaimId.of, fate.pod.claims))

    def _place_on(self, number: int, node: str) -> bool:
        pod = self._fates[number].pod.pod
        pinned = replace(pod, spec=replace(pod.spec, node_name=node))
        placement = self._cycle.placement(pinned, _START + timedelta(seconds=self._now_s))
        if placement is not None:
            self._assume(number, placement)
        return placement is not None

    def _remove(self, number: int) -> dict[ClaimId, AllocationResult]:
        """Takes the pod from its node, and returns the devices that it had."""
        fate = self._fates[number]
        self._state.pod_changed(fate.pod.pod, None)
        had: dict[ClaimId, AllocationResult] = {}
        for claim in fate.pod.claims:
            known = self._state.find_claim(ClaimId.of(claim))
            allocation = known.status.allocation if known is not None else None
            assert allocation is not None, "a placed pod has its devices"
            had[ClaimId.of(claim)] = allocation
            self._users[ClaimId.of(claim)] -= 1
            self._state.claim_changed(known, None)
            self._state.claim_changed(None, claim)
        self._meter.update(self._state.snapshot, had.values())
        fate.node, fate.claims = None, ()
        return had

    def _restore(self, number: int, node: str, allocations: dict[ClaimId, AllocationResult]) -> None:
        fate = self._fates[number]
        self._state.assume(fate.pod.pod, node, allocations)
        self._meter.update(self._state.snapshot, allocations.values())
        fate.node, fate.claims = node, tuple(allocations)
        for claim_id in allocations:
            self._users[claim_id] += 1

    # --- Results ----------------------------------------------------------------------------------------------------

    def _add_step(self) -> None:
        row = (
            len(self._fates),
            self._now_s,
            self._arrived_milli,
            self._meter.allocated_milli,
            self._running,
            self._waiting_count,
        )
        for column, value in zip(self._steps.values(), row, strict=True):
            column.append(value)

    def result(self, setting: RunSetting, stranded: Columns, notes: tuple[str, ...], *, has_departures: bool) -> Run:
        return Run(
            setting=setting,
            capacity_milli=self._meter.capacity_milli,
            has_departures=has_departures,
            steps=self._steps,
            pods=_pod_columns(self._fates),
            stranded=stranded,
            moves=self._moves,
            decisions=self._decisions,
            decide_s=self._decide_s,
            notes=notes,
        )


def _pod_columns(fates: list[_PodFate]) -> Columns:
    arrived = [fate.pod.arrival.at_s for fate in fates]
    placed = [fate.placed_s for fate in fates]
    return {
        "name": [fate.pod.arrival.name for fate in fates],
        "size": [fate.pod.size for fate in fates],
        "requested_milli": [fate.pod.requested_milli for fate in fates],
        "arrived_s": arrived,
        "placed_s": placed,
        "waited_s": [at - came if at is not None else None for came, at in zip(arrived, placed, strict=True)],
        "left_s": [fate.left_s for fate in fates],
        "node": [fate.node for fate in fates],
        "reason": [fate.reason for fate in fates],
    }


# --- Stranding samples ----------------------------------------------------------------------------------------------
# How much of the devices is idle and stranded, by cause, at some points of a simulation.


class StrandingSamples:
    """Samples of one driver's devices; of all if it is empty. The typical pods are those of the trace."""

    def __init__(self, view: ClusterView, driver: str, pods: Iterable[ArrivingPod]) -> None:
        features = Features.of(FeatureGates.defaults()).of_scheduler()
        self.typical = typical = TypicalPods()
        for each in pods:
            typical.count(each.pod, (*each.claims, *each.shared), view.classes, features)
        self._driver = driver
        self._fragmentation = Fragmentation(view, features, typical.top())
        self.columns: Columns = {name: [] for name in ("arrival", "time_s", *(each.value for each in StrandedCause))}

    def take(self, arrival: int, time_s: float) -> None:
        found = [each for name, each in self._fragmentation.by_driver().items() if self._driver in ("", name)]
        amounts = (sum(each.stranded.get(cause, 0) for each in found) for cause in StrandedCause)
        for column, value in zip(self.columns.values(), (arrival, time_s, *amounts), strict=True):
            column.append(value)
