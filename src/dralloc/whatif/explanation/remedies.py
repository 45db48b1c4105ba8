"""The changes with which the scheduler places the pod. Only a change that was tried on the whole cluster is a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dralloc.api.pod_v1 import Pod
from dralloc.scheduler.contract import Placement
from dralloc.whatif.engine import Engine
from dralloc.whatif.explanation.changes import Change
from dralloc.whatif.explanation.proposals import Ladder
from dralloc.whatif.object_changes import InapplicableChange
from dralloc.whatif.template_claims import MissingTemplate

REMEDIES_MAX: Final = 5
# The number of trials on one node, and on all nodes.
TRIALS_MAX: Final = 150
CLUSTER_TRIALS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change, and the placement of the pod that the scheduler's cycle decides on after it."""

    change: Change
    placement: Placement

    @property
    def node(self) -> str:
        return self.placement.node


class Trials:
    """Tries changes on a copy of the cluster, by the decision about the pod."""

    def __init__(self, engine: Engine, pod: Pod) -> None:
        self._engine = engine
        self._pod = pod
        self._left = {True: TRIALS_MAX, False: CLUSTER_TRIALS_MAX}
        # By the change's text and the node that was asked.
        self._known: dict[tuple[str, str], Placement | None] = {}

    def remedies(self, ladders: Iterable[tuple[str, Ladder]]) -> tuple[Remedy, ...]:
        """The likeliest ones, from ladders for some nodes; an empty name stands for all nodes.

        One node is cheaper to ask than all of them, so that the rung is looked for there.
        """
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

    def _least(self, ladder: Ladder, node: str) -> Change | None:
        """The first rung that helps. If one helps, all after it are assumed to help."""
        if not ladder or self._placement(ladder[-1], node) is None:
            return None
        low, high = 0, len(ladder) - 1
        while low < high:
            middle = (low + high) // 2
            if self._placement(ladder[middle], node) is not None:
                high = middle
            else:
                low = middle + 1
        return ladder[high]

    def _placement(self, change: Change, node: str = "") -> Placement | None:
        key, is_local = (change.text, node), bool(node)
        if key not in self._known:
            if not self._left[is_local]:
                return None
            self._left[is_local] -= 1
            self._known[key] = self._try(change, node)
        return self._known[key]

    def _try(self, change: Change, node: str) -> Placement | None:
        try:
            with self._engine.trial(change.objects) as trial:
                return trial.placement(trial.complete(self._pod), node)
        except (InapplicableChange, MissingTemplate):
            return None
