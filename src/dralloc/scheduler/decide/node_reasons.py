"""Why no node takes a pod: the reason of each node, in groups. They become text when the message for a pod is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from dralloc.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.allocator.diagnosis.reasons import Group, Reason, ReasonCause, grouped
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.contract import DYNAMIC_RESOURCES
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.node_fit import NOT_SELECTED, WRONG_NAME
from dralloc.scheduler.decide.node_verdicts import Faulty, Fits, Lacking, NodeVerdict, OutOfReach, Unfit
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.state.node_state import NodeState
from dralloc.snapshot.cluster import Snapshot

# How many nodes are diagnosed at once. A diagnosis takes longer than a verdict, and other pods wait meanwhile.
DIAGNOSED_MAX: Final = 500
UNDIAGNOSED: Final = "cannot allocate all claims"


class NodeReasons:
    """The reasons of nodes for one pod's requirements. Each is diagnosed once per verdict, because most do not change."""

    def __init__(self, requirements: PodRequirements, devices: DeviceJudge | None) -> None:
        self._requirements = requirements
        self._devices = devices
        self._known: dict[str, tuple[NodeVerdict, Reason]] = {}

    def groups(
        self, verdicts: Mapping[str, NodeVerdict], nodes: Mapping[str, NodeState], snapshot: Snapshot
    ) -> tuple[Group, ...]:
        """The reasons of all nodes. Nodes without a verdict are those that the requirements exclude by name."""
        self._diagnose(verdicts, nodes, snapshot)
        undiagnosed = _about_node(UNDIAGNOSED)
        reasons = [(name, self._known[name][1] if name in self._known else undiagnosed) for name in verdicts]
        return grouped([*reasons, *self._excluded(verdicts, nodes)])

    def are_complete(self, verdicts: Mapping[str, NodeVerdict]) -> bool:
        """True if the last groups had the reason of every node."""
        return len(self._known) == len(verdicts)

    def _diagnose(
        self, verdicts: Mapping[str, NodeVerdict], nodes: Mapping[str, NodeState], snapshot: Snapshot
    ) -> None:
        known = self._known
        if known.keys() - verdicts.keys():
            known = self._known = {name: known[name] for name in verdicts if name in known}
        changed = [name for name, verdict in verdicts.items() if name not in known or known[name][0] is not verdict]
        for name in changed[DIAGNOSED_MAX:]:
            known.pop(name, None)
        diagnoser = Diagnoser(self._devices.demand, snapshot) if self._devices is not None else None
        for name in changed[:DIAGNOSED_MAX]:
            self._known[name] = verdicts[name], self._reason(verdicts[name], nodes[name], diagnoser)

    def _reason(self, verdict: NodeVerdict, node: NodeState, diagnoser: Diagnoser | None) -> Reason:
        """The diagnosis of devices holds for all pods with the same demand. Equal reasons are one object."""
        if self._devices is None or not isinstance(verdict, Lacking):
            return reason_of(verdict, node, diagnoser)
        shared = self._devices.reasons
        reason = shared.get(verdict.devices_key)
        if reason is None:
            bare = replace(reason_of(verdict, node, diagnoser), example="", also="")
            reason = shared[verdict.devices_key] = self._devices.distinct_reasons.setdefault(bare, bare)
        return reason

    def _excluded(
        self, verdicts: Mapping[str, NodeVerdict], nodes: Mapping[str, NodeState]
    ) -> Iterator[tuple[str, Reason]]:
        if len(verdicts) == len(nodes):
            return
        required = self._requirements.node
        exclusions = [
            (required.only_nodes(), _about_node((WRONG_NAME if required.node_name else NOT_SELECTED).reason)),
            *((held.only_nodes(), _out_of_reach(held.claim_id, held.place)) for held in self._requirements.held),
        ]
        for name in nodes:
            if name not in verdicts:
                because = (reason for names, reason in exclusions if names is not None and name not in names)
                yield name, next(because, _about_node(UNDIAGNOSED))


def reason_of(verdict: NodeVerdict, node: NodeState, diagnoser: Diagnoser | None) -> Reason:
    """Why a node with this verdict cannot take the pod. Verdicts about devices need a diagnoser."""
    match verdict:
        case Unfit() | OutOfReach():
            return reason_about_node(verdict)
        case Lacking(outcome=outcome) | Faulty(outcome):
            assert diagnoser is not None, "a verdict about devices needs a demand"
            return diagnoser.reason(node.offer.place, outcome)
        case Fits():
            raise AssertionError(f"{node.name} fits")


def reason_about_node(verdict: Unfit | OutOfReach) -> Reason:
    """Why a node cannot take the pod, whatever devices it has."""
    match verdict:
        case Unfit(misfit):
            return _about_node(misfit.reason)
        case OutOfReach(claim_id, place):
            return _out_of_reach(claim_id, place)


@lru_cache(maxsize=1024)
def _about_node(sentence: str) -> Reason:
    return Reason(cause=ReasonCause.NODE, subject=sentence)


def _out_of_reach(claim_id: ClaimId, place: str) -> Reason:
    return _about_node(f"claim {claim_id} is allocated on {place}, which this node cannot use")


def plugins(verdicts: Iterable[NodeVerdict]) -> frozenset[str]:
    """The Kubernetes plugins that would have rejected the nodes."""
    return frozenset(verdict.misfit.plugin if isinstance(verdict, Unfit) else DYNAMIC_RESOURCES for verdict in verdicts)
