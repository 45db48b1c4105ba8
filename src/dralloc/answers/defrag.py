"""Defragmentation: the fewest moves that make room for pods, or that free the most whole devices.

A move is an eviction with a proven new place: the scheduler's cycle decides, in the order of the plan, on the state that the moves
before leave. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

from dralloc.answers.api_refusals import priority_classes, priority_of
from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine, pods_by_priority
from dralloc.answers.movable_pods import FixedPod, MoveRules, MoveUnit, Relocation, SearchLimit, devices_of, sort_pods
from dralloc.answers.move_search import Goal, MoveProof, MoveSearch, PlannedMove, ProvenMoves
from dralloc.answers.placements import PodPlacement, UnplacedPod
from dralloc.devices.device_usage import devices_used
from dralloc.devices.identity import DeviceId, PoolId
from dralloc.devices.slices import newest_indexed
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from dralloc.primitives.phrases import counted
from dralloc.scheduler.contract import Decision, Rejection
from dralloc.scheduler.settings import ONLY_SCHEDULER_NAMES
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.placed_pods import claims_used_by, pod_key

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


# --- Freed devices --------------------------------------------------------------------------------------------------
# Which moves free the most whole devices, and of those the fewest.
#
# A whole device is one that nothing uses; partitions count by card: all that draw from one counter set. First, one
# card after the other is emptied, the cheapest first, and its pods go where the scheduler places them. This plan is
# compared with all others, as far as the budget of decisions goes: at first the moved pods get only devices that
# are in use already; in a small cluster, they may then take free devices, too, if that frees more of others.


# With more cards, the question whether moves to free devices would free more of others is not asked.
EXACT_CARDS_MAX: Final = 64


class CardId(NamedTuple):
    """A device, or the counter set that partitions draw from."""

    pool: PoolId
    name: str


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of nodes, with the devices of each: the one that takes most of it first."""

    devices: dict[CardId, tuple[DeviceId, ...]]
    of: dict[DeviceId, CardId]

    @classmethod
    def in_state(cls, state: ClusterState) -> Cards:
        found: dict[CardId, list[tuple[int, DeviceId]]] = {}
        for pool_id, pool in state.snapshot.pools.items():
            for indexed in newest_indexed(pool.slices):
                if not indexed.node_name:
                    continue
                for bit, device in enumerate(indexed.devices):
                    sets = sorted({use.counter_set for use in device.consumes_counters})
                    card = CardId(pool_id, "+".join(sets) or device.name)
                    size = sum(nanos for _, nanos in indexed.draws[bit])
                    found.setdefault(card, []).append((-size, indexed.device_id(bit)))
        devices = {card: tuple(device for _, device in sorted(members)) for card, members in found.items()}
        return cls(devices, {device: card for card, members in devices.items() for device in members})

    def free(self, state: ClusterState) -> set[CardId]:
        """Those that no claim uses."""
        used = set()
        for pool_id, usage in state.snapshot.usage.items():
            used |= {self.of.get(pool_id.device(name)) for name in usage.devices}
        return self.devices.keys() - used


class DeviceEmptying:
    """`make` makes the state from which plans start: one to search on, and one to prove plans on."""

    def __init__(self, make: Callable[[], Relocation], units: Sequence[MoveUnit]) -> None:
        self._relocation = make()
        self._make = make
        self._search = MoveSearch(self._relocation, units)
        self._state = self._relocation.engine.cluster
        self._cards = Cards.in_state(self._state)
        self._free = self._cards.free(self._state)
        self._units = self._units_by_card(units)
        self._moves = self._count = 0
        # After a plan was made: how many more cards are free then.
        self.gain = 0
        self._proven = ProvenMoves((), ())
        self._takes_free = False
        self.is_complete = True
        # After a plan was made: the cards that it empties.
        self.freed: tuple[CardId, ...] = ()

    def plan(self, moves_max: int) -> ProvenMoves:
        """The moves that free most devices; none if no device can be freed."""
        order = sorted(self._units, key=lambda card: (sum(len(unit.pods) for unit in self._units[card]), card))
        mark = self._relocation.mark()
        try:
            self._relocation.use(self._blocking(self._free))
            self._empty_simply(order, moves_max, moves_max, ())
            self._empty(order, 0, moves_max, moves_max, ())
            self._relocation.back_to(mark)
            is_best = not self._may_improve(order, 0, 0, moves_max)
            self.is_complete = is_best or len(self._cards.devices) <= EXACT_CARDS_MAX
            if self.is_complete and not is_best and self._free:
                self._takes_free = True
                self._empty(order, 0, moves_max, moves_max, ())
        except SearchLimit:
            self.is_complete = False
        return self._proven

    def _units_by_card(self, units: Sequence[MoveUnit]) -> dict[CardId, tuple[MoveUnit, ...]]:
        """The cards whose users can all be moved."""
        holders: dict[CardId, dict[int, MoveUnit | None]] = {}
        by_claim = {claim: unit for unit in units for pod in unit.pods for claim in claims_used_by(pod)}
        for claim_id, claim in self._state.snapshot.claims.items():
            for device in devices_used(claim):
                if (card := self._cards.of.get(device)) is not None:
                    unit = by_claim.get(claim_id)
                    holders.setdefault(card, {})[id(unit)] = unit
        return {
            card: tuple(unit for unit in found.values() if unit is not None)
            for card, found in holders.items()
            if None not in found.values()
        }

    def _empty(
        self, cards: Sequence[CardId], start: int, moves_max: int, left: int, emptied: tuple[CardId, ...]
    ) -> None:
        moves = moves_max - left
        self._keep_if_better(emptied, moves)
        for index in range(start, len(cards)):
            if not self._may_improve(cards[index:], len(emptied), moves, left):
                return
            card = cards[index]
            for now_left in self._emptied(card, self._unmoved(card), left):
                self._empty(cards, index + 1, moves_max, now_left, (*emptied, card))
                if not self._may_improve(cards[index:], len(emptied), moves, left):
                    return

    def _empty_simply(self, cards: Sequence[CardId], moves_max: int, left: int, emptied: tuple[CardId, ...]) -> None:
        """A first plan, which is often the best: nothing that was done for one card is taken back for another one."""
        for index, card in enumerate(cards):
            units = self._unmoved(card)
            for now_left in self._emptied(card, units, left, simply=True):
                self._keep_if_better((*emptied, card), moves_max - now_left)
                self._empty_simply(cards[index + 1 :], moves_max, now_left, (*emptied, card))
                return

    def _unmoved(self, card: CardId) -> list[MoveUnit]:
        return [unit for unit in self._units[card] if id(unit) not in self._search.moved]

    def _keep_if_better(self, emptied: tuple[CardId, ...], moves: int) -> None:
        gain = len(emptied) - self._taken()
        if (gain, -moves) > (self.gain, -self._moves):
            self._keep_if_proven(emptied, gain, moves)

    def _taken(self) -> int:
        """How many cards that were free the moved pods have taken."""
        return len(self._free - self._cards.free(self._state)) if self._takes_free else 0

    def _may_improve(self, cards: Sequence[CardId], count: int, moves: int, left: int) -> bool:
        """True if emptying some of the cards could free more than the best plan so far, or as much with fewer moves."""
        costs = sorted(
            sum(len(unit.pods) for unit in self._units[card] if id(unit) not in self._search.moved) for card in cards
        )
        for cost in costs:
            if cost > left:
                break
            count, moves, left = count + 1, moves + cost, left - cost
            if (count, -moves) > (self.gain, -self._moves):
                return True
        return False

    def _emptied(self, card: CardId, units: Sequence[MoveUnit], left: int, *, simply: bool = False) -> Iterator[int]:
        of = self._cards.of
        if any(of.get(device) == card for each in self._search.reached for device in devices_of(each.placed)):
            # A pod that was moved uses it now.
            return
        yield from self._search.emptied(
            units, left, lambda: self._relocation.use(self._blocking({card})), simply=simply
        )

    def _keep_if_proven(self, emptied: tuple[CardId, ...], gain: int, moves: int) -> None:
        relocation, of = self._make(), self._cards.of
        state, wanted = relocation.engine.cluster, len(self._free) + gain
        planned = {of.get(device) for each in self._search.reached for device in devices_of(each.placed)}
        spoiled = (self._free | set(emptied)) - planned

        def accepts(placed: PodPlacement) -> bool:
            return not any(of.get(device) in spoiled for device in devices_of(placed))

        proof = MoveProof(relocation, accepts, lambda: len(self._cards.free(state)) >= wanted)
        keep = [device for card in emptied for device in self._cards.devices[card]]
        # One budget for the search and the proofs.
        relocation.decisions = self._relocation.decisions
        try:
            proven = proof.prove(self._search.reached, keep)
        finally:
            self._relocation.decisions = relocation.decisions
        if proven is not None:
            self.gain, self._moves, self._proven, self.freed = gain, moves, proven, emptied

    def _blocking(self, cards: set[CardId]) -> ResourceClaim:
        """A claim that uses the cards, so that nothing else does."""
        results = [
            DeviceRequestAllocationResult(request="hold", driver=device.driver, pool=device.pool, device=device.device)
            for card in sorted(cards)
            for device in self._cards.devices[card][:1]
        ]
        self._count += 1
        return ResourceClaim(
            metadata=ObjectMeta(name=f"hold/{self._count}", namespace="", uid=f"hold/{self._count}"),
            status=ResourceClaimStatus(
                allocation=AllocationResult(devices=DeviceAllocationResult(results=tuple(results)))
            ),
        )
