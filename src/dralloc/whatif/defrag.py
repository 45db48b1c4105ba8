"""Defragmentation: the fewest moves that make room for pods, or that free the most whole devices.

A move is an eviction with a proven new place: the scheduler's cycle decides, in the order of the plan, on the state that the moves
before leave. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from dralloc.api.pod_v1 import Pod
from dralloc.primitives.phrases import counted
from dralloc.scheduler.contract import Decision, Rejection
from dralloc.scheduler.settings import ONLY_SCHEDULER_NAMES
from dralloc.scheduler.state.placed_pods import pod_key
from dralloc.whatif.api_refusals import priority_classes, priority_of
from dralloc.whatif.cluster_objects import ClusterObjects
from dralloc.whatif.engine import Engine, pods_by_priority
from dralloc.whatif.freed_devices import CardId, DeviceEmptying
from dralloc.whatif.movable_pods import FixedPod, MoveRules, sort_pods
from dralloc.whatif.move_proof import MoveProof, PlannedMove, ProvenMoves
from dralloc.whatif.move_search import Goal, MoveSearch
from dralloc.whatif.placements import PodPlacement, UnplacedPod
from dralloc.whatif.relocation import Relocation, SearchLimit

MOVES_MAX: Final = 5
# A decision takes about a millisecond.
DECISIONS_MAX: Final = 10_000
# Ways to place all pods whose order does not work, before the search ends.
UNPROVEN_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class DefragPlan:
    """What to move, in this order, and what it is good for.

    `placed` are the pods that a place was made for, `freed` the cards that nothing uses after the moves,
    and `gain` how many more are free then: moved pods may take others. Without `message` the plan
    does what was asked. `is_fewest`: no plan with fewer moves does it, or frees more devices.
    """

    moves: tuple[PlannedMove, ...] = ()
    placed: tuple[PodPlacement, ...] = ()
    freed: tuple[CardId, ...] = ()
    gain: int = 0
    fixed: tuple[FixedPod, ...] = ()
    is_fewest: bool = True
    message: str = ""

    @property
    def pods_moved(self) -> int:
        return sum(len(move.pods) for move in self.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragQuestion:
    """What to make room for, and what may be moved. Without targets, whole devices are freed."""

    targets: Sequence[Pod] = ()
    moves_max: int = MOVES_MAX
    bare_pods: bool = False
    scheduler_names: Collection[str] = field(default=ONLY_SCHEDULER_NAMES)
    decisions_max: int = DECISIONS_MAX


def plan_defrag(objects: ClusterObjects, question: DefragQuestion) -> DefragPlan:
    """The plan for the question. The objects that targets depend on, such as templates, are among the objects."""
    return _Planner(objects, question).plan()


class _Planner:
    def __init__(self, objects: ClusterObjects, question: DefragQuestion) -> None:
        self._objects = objects
        self._question = question
        self._classes = priority_classes(objects)
        rules = MoveRules(question.scheduler_names, bare_pods=question.bare_pods)
        if question.targets:
            lowest = min(priority_of(pod, self._classes) for pod in question.targets)
            rules = replace(rules, priority_max=lowest)
        self._rules = rules
        self._units, self._fixed = sort_pods(objects, rules)

    def plan(self) -> DefragPlan:
        if self._question.targets:
            return self._plan_for_targets()
        emptying = DeviceEmptying(self._start, self._units)
        proven = emptying.plan(self._question.moves_max)
        return DefragPlan(
            proven.moves, freed=emptying.freed, gain=emptying.gain, fixed=self._fixed, is_fewest=emptying.is_complete
        )

    def _start(self) -> Relocation:
        """A state to try moves on: as the cluster is once the pods that wait have been placed."""
        question, objects = self._question, self._objects
        engine = Engine(objects, objects.now, scheduler_names=question.scheduler_names)
        mine = {pod_key(pod) for pod in question.targets}

        def decide(pod: Pod) -> Decision:
            return engine.placement(pod) or Rejection("", frozenset())

        notes = len(objects.notes)
        for pod in list(pods_by_priority(objects, None)):
            is_ahead = not mine or priority_of(pod, self._classes) >= self._rules.priority_max
            if not pod.spec.node_name and pod_key(pod) not in mine and is_ahead:
                # As in the scheduler's queue.
                engine.place(pod, decide)
        for pod in question.targets:
            engine.create(pod)
        del objects.notes[notes:]
        return Relocation(engine, question.decisions_max)

    def _goals(self, engine: Engine) -> tuple[Goal, ...]:
        notes = len(engine.objects.notes)
        goals = tuple(Goal(engine.complete(pod)) for pod in self._question.targets)
        del engine.objects.notes[notes:]
        return goals

    def _plan_for_targets(self) -> DefragPlan:
        question, relocation = self._question, self._start()
        for pod in question.targets:
            for blocker in relocation.engine.blockers(pod):
                return DefragPlan(fixed=self._fixed, message=f"pod {'/'.join(pod_key(pod))}: {blocker.message}")
        goals = self._goals(relocation.engine)
        search = MoveSearch(relocation, self._units)
        try:
            for moves_max in range(question.moves_max + 1):
                if (proven := self._with_moves(search, goals, moves_max)) is not None:
                    return DefragPlan(proven.moves, proven.placed, fixed=self._fixed)
        except SearchLimit:
            message = f"no plan found within {question.decisions_max:,} decisions (--decisions-max)"
            return DefragPlan(fixed=self._fixed, is_fewest=False, message=message)
        return DefragPlan(fixed=self._fixed, message=_why_not(relocation.engine, goals, question.moves_max))

    def _with_moves(self, search: MoveSearch, goals: Sequence[Goal], moves: int) -> ProvenMoves | None:
        """A plan with exactly so many moves; fewer were tried before."""
        exact = (list(search.reached) for left in search.placings(goals, moves) if not left)
        for reached in islice(exact, UNPROVEN_MAX):
            proving = self._start()
            self._goals(proving.engine)
            if (proven := MoveProof(proving).prove(reached)) is not None:
                return proven
        return None


def _why_not(engine: Engine, goals: Sequence[Goal], moves_max: int) -> str:
    placed = [engine.place(goal.pod) for goal in goals]
    refused = next((each for each in placed if isinstance(each, UnplacedPod)), None)
    told = f" pod {'/'.join(pod_key(refused.pod))}: {refused.message}" if refused is not None else ""
    return f"no plan of at most {counted(moves_max, 'move')} makes room.{told}"
