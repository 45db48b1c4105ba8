"""Why no node takes a pod, in one line: how many nodes say what, and by how much they fall short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from dralloc.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.allocator.diagnosis.reasons import Cause, Reason, availability, grouped
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.decide.claim_checks import PLUGIN
from dralloc.scheduler.decide.node_fit import NOT_SELECTED
from dralloc.scheduler.decide.node_verdicts import Faulty, Fits, Lacking, OutOfReach, Unfit, Verdict
from dralloc.scheduler.decide.pod_requirements import Ask
from dralloc.scheduler.state.node_state import NodeState
from dralloc.snapshot.cluster import Snapshot

# How many nodes are asked for the reason in one go. That takes longer than to find out that they have one, and pods wait.
EXPLAINED_MAX: Final = 500
UNEXPLAINED: Final = "cannot allocate all claims"


class Reasons:
    """The reasons of one ask. A node's is worked out once for each of its verdicts, because most do not change."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._known: dict[str, tuple[Verdict, Reason]] = {}

    def summary(self, verdicts: Mapping[str, Verdict], nodes: Mapping[str, NodeState], snapshot: Snapshot) -> str:
        """Nodes without a verdict are those that the ask rules out by name."""
        if not nodes:
            return "no nodes are available"
        self._learn(verdicts, nodes, snapshot)
        unexplained = _about_node(UNEXPLAINED)
        reasons = [(name, self._known[name][1] if name in self._known else unexplained) for name in verdicts]
        return availability(grouped([*reasons, *self._ruled_out(verdicts, nodes)]), total=len(nodes))

    def are_complete(self, verdicts: Mapping[str, Verdict]) -> bool:
        """Whether the last summary had the reason of every node."""
        return len(self._known) == len(verdicts)

    def _learn(self, verdicts: Mapping[str, Verdict], nodes: Mapping[str, NodeState], snapshot: Snapshot) -> None:
        known = self._known
        self._known = {name: known[name] for name in verdicts if name in known and known[name][0] is verdicts[name]}
        new = islice((name for name in verdicts if name not in self._known), EXPLAINED_MAX)
        diagnoser = Diagnoser(self._ask.demand, snapshot) if self._ask.demand is not None else None
        for name in list(new):
            self._known[name] = verdicts[name], _reason(verdicts[name], nodes[name], diagnoser)

    def _ruled_out(
        self, verdicts: Mapping[str, Verdict], nodes: Mapping[str, NodeState]
    ) -> Iterator[tuple[str, Reason]]:
        if len(verdicts) == len(nodes):
            return
        wished = self._ask.wishes.only_nodes()
        reaching = [(held.only_nodes(), _out_of_reach(held.claim_id)) for held in self._ask.held]
        rulings = [(wished, _about_node(NOT_SELECTED.reason)), *reaching]
        for name in nodes:
            if name not in verdicts:
                because = (reason for names, reason in rulings if names is not None and name not in names)
                yield name, next(because, _about_node(UNEXPLAINED))


def _reason(verdict: Verdict, node: NodeState, diagnoser: Diagnoser | None) -> Reason:
    match verdict:
        case Unfit(misfit):
            return _about_node(misfit.reason)
        case OutOfReach(claim_id):
            return _out_of_reach(claim_id)
        case Lacking(outcome) | Faulty(outcome):
            assert diagnoser is not None, "only an ask for devices fails for them"
            return diagnoser.reason(node.offer.place, outcome)
        case Fits():
            raise AssertionError(f"{node.name} fits")


def _about_node(sentence: str) -> Reason:
    return Reason(cause=Cause.NODE, subject=sentence)


def _out_of_reach(claim_id: ClaimId) -> Reason:
    return _about_node(f"claim {claim_id} has devices that are out of reach")


def plugins(verdicts: Iterable[Verdict]) -> frozenset[str]:
    """The checks that keep the pod from nodes, by their names in Kubernetes."""
    return frozenset(verdict.misfit.plugin if isinstance(verdict, Unfit) else PLUGIN for verdict in verdicts)
