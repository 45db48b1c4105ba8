"""The changes with which the scheduler places the pod. Only a change that was tried on the whole cluster is a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dralloc.answers.engine import Engine
from dralloc.answers.explanation.changes import Change
from dralloc.answers.explanation.proposals import Ladder
from dralloc.answers.explanation.situation import Situation
from dralloc.answers.object_changes import InapplicableChange
from dralloc.answers.template_claims import MissingTemplate
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, Fatal
from dralloc.devices.allocator.solver import StepBudget
from dralloc.devices.node_selectors import NodeFacts
from dralloc.kube.pod_v1 import Pod
from dralloc.scheduler.contract import Placement

REMEDIES_MAX: Final = 5
# The number of trials on one node, with the effort of each, and on all nodes.
NODE_TRIALS_MAX: Final = 150
PROBE_BUDGET: Final = StepBudget(steps_max=3000)
CLUSTER_TRIALS_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change, and the placement of the pod that the scheduler's cycle decides on after it."""

    change: Change
    placement: Placement

    @property
    def node(self) -> str:
        return self.placement.node


class Trials:
    """Tries changes on a copy of the cluster, by the decision about the pod.

    `has_error`: an error on a node keeps the pod from all of them.
    """

    def __init__(self, engine: Engine, pod: Pod, *, has_error: bool) -> None:
        self._has_error = has_error
        self._engine = engine
        self._pod = pod
        self._node_trials_left = NODE_TRIALS_MAX
        # By the text of the change.
        self._placements: dict[str, Placement | None] = {}

    def remedies(self, ladders: Iterable[tuple[NodeFacts, Ladder]]) -> tuple[Remedy, ...]:
        """The likeliest ones, from ladders for some nodes: one node is asked first, because that costs less than all."""
        helpful = {change.text: change for node, ladder in ladders if (change := self._least(ladder, node)) is not None}
        ranked = sorted(helpful.values(), key=lambda change: (change.distance, change.text))
        found: list[Remedy] = []
        for remedy in self._verified(ranked):
            found.append(remedy)
            if len(found) == REMEDIES_MAX:
                break
        return tuple(found)

    def _verified(self, changes: Iterable[Change]) -> Iterator[Remedy]:
        for change in changes:
            placement = self._placement(change)
            if placement is not None:
                yield Remedy(change, placement)

    def _least(self, ladder: Ladder, node: NodeFacts) -> Change | None:
        """The first rung that helps. If one helps, all after it are assumed to help."""
        if not ladder or not self._helps(ladder[-1], node):
            return None
        low, high = 0, len(ladder) - 1
        while low < high:
            middle = (low + high) // 2
            if self._helps(ladder[middle], node):
                high = middle
            else:
                low = middle + 1
        return ladder[high]

    def _helps(self, change: Change, node: NodeFacts) -> bool:
        """True if the node has the devices that the pod needs after the change; after an error, if the pod is placed."""
        if not self._node_trials_left:
            return False
        self._node_trials_left -= 1
        try:
            with self._engine.trial(change.objects) as trial:
                outcome = Situation.of(trial, trial.complete(self._pod), node).outcome(PROBE_BUDGET)
        except (InapplicableChange, MissingTemplate):
            return False
        if self._has_error:
            return not isinstance(outcome, Fatal | BudgetExhausted) and self._placement(change) is not None
        return isinstance(outcome, Allocated)

    def _placement(self, change: Change) -> Placement | None:
        if change.text not in self._placements and len(self._placements) < CLUSTER_TRIALS_MAX:
            self._placements[change.text] = self._try(change)
        return self._placements.get(change.text)

    def _try(self, change: Change) -> Placement | None:
        try:
            with self._engine.trial(change.objects) as trial:
                placement = trial.placement(trial.complete(self._pod))
                return placement if placement is not None and not trial.blockers(self._pod) else None
        except (InapplicableChange, MissingTemplate):
            return None
