"""Why no node takes a pod: the reason of each node, in groups. They become text when the message for a pod is made."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonCause, ReasonGroup, groups_of
from dralloc.devices.identity import ClaimId
from dralloc.devices.snapshot import Snapshot
from dralloc.primitives.work_allowance import WorkExceeded, is_work_left, renewed_allowance
from dralloc.scheduler.contract import DYNAMIC_RESOURCES
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.device_reasons import DIAGNOSED_MAX, UNDIAGNOSED
from dralloc.scheduler.decide.node_fit import NOT_SELECTED, WRONG_NAME
from dralloc.scheduler.decide.node_verdicts import Faulty, Fits, Lacking, NodeJudge, NodeVerdict, OutOfReach, Unfit
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.state.node_state import NodeState


class NodeReasons:
    """The reasons of nodes for one pod's requirements, kept in groups: each node is diagnosed once per verdict.

    `pending` are the nodes whose verdict has changed since they were diagnosed.
    """

    def __init__(self, requirements: PodRequirements, judge: NodeJudge) -> None:
        self._requirements = requirements
        self._judge = judge
        self.pending: dict[str, None] = {}
        # By plugin and reason: the nodes. And the group that each node is in.
        self._members: dict[tuple[str, int], tuple[Reason, dict[str, None]]] = {}
        self._places: dict[str, tuple[str, int]] = {}
        self._groups: tuple[ReasonGroup, ...] | None = None

    def groups(
        self, verdicts: Mapping[str, NodeVerdict], nodes: Mapping[str, NodeState], snapshot: Snapshot
    ) -> tuple[ReasonGroup, ...]:
        """The reasons of all nodes. Nodes without a verdict are those that the requirements exclude by name."""
        if self.pending or self._groups is None:
            self._diagnose(verdicts, nodes, snapshot)
            excluded = ((reason, (name,)) for name, reason in self._excluded(verdicts, nodes))
            self._groups = groups_of((*self._members.values(), *excluded))
        return self._groups

    def plugins(self) -> frozenset[str]:
        """The Kubernetes plugins that reject the nodes, as of the last groups."""
        return frozenset(plugin for plugin, _ in self._members)

    def groups_under(
        self, verdicts: Mapping[str, NodeVerdict], nodes: Mapping[str, NodeState], snapshot: Snapshot
    ) -> tuple[ReasonGroup, ...]:
        """The reasons of other verdicts than those that are kept."""
        once = NodeReasons(self._requirements, self._judge)
        once.pending = dict.fromkeys(verdicts)
        return once.groups(verdicts, nodes, snapshot)

    def _diagnose(
        self, verdicts: Mapping[str, NodeVerdict], nodes: Mapping[str, NodeState], snapshot: Snapshot
    ) -> None:
        diagnosers: dict[DeviceJudge, Diagnoser] = {}
        left = DIAGNOSED_MAX
        pending, self.pending = self.pending, {}
        for name in pending:
            self._drop(name)
            verdict = verdicts.get(name)
            if verdict is None:
                continue
            reason = self._known_reason(verdict, nodes[name], snapshot)
            if reason is None:
                left -= 1
                if left >= 0 and is_work_left():
                    reason = self._new_reason(verdict, nodes[name], snapshot, diagnosers)
                else:
                    reason = UNDIAGNOSED
                    self.pending[name] = None
            place = self._places[name] = (plugin_of(verdict), id(reason))
            self._members.setdefault(place, (reason, {}))[1][name] = None

    def _drop(self, name: str) -> None:
        place = self._places.pop(name, None)
        if place is not None:
            names = self._members[place][1]
            del names[name]
            if not names:
                del self._members[place]

    def _known_reason(self, verdict: NodeVerdict, node: NodeState, snapshot: Snapshot) -> Reason | None:
        """The reason if it needs no diagnosis, or there was one of the same devices and demand."""
        if type(verdict) is Unfit or type(verdict) is OutOfReach:
            return reason_about_node(verdict)
        devices = self._judge.devices_on(node)
        key = _key(verdict, node, snapshot, devices)
        return devices.known_reason(key) if devices is not None and key is not None else None

    def _new_reason(
        self, verdict: NodeVerdict, node: NodeState, snapshot: Snapshot, diagnosers: dict[DeviceJudge, Diagnoser]
    ) -> Reason:
        devices = self._judge.devices_on(node)
        if devices is None:
            return reason_of(verdict, node, None)
        if devices not in diagnosers:
            diagnosers[devices] = Diagnoser(devices.demand, snapshot)
        try:
            # It cannot go on where it was.
            with renewed_allowance():
                reason = reason_of(verdict, node, diagnosers[devices])
        except WorkExceeded:
            reason = UNDIAGNOSED
        key = _key(verdict, node, snapshot, devices)
        return reason if key is None else devices.keep_reason(key, replace(reason, example="", also=""))

    def _excluded(
        self, verdicts: Mapping[str, NodeVerdict], nodes: Mapping[str, NodeState]
    ) -> Iterator[tuple[str, Reason]]:
        if len(verdicts) == len(nodes):
            return
        required = self._requirements.node
        exclusions = [
            (required.only_nodes(), about_node((WRONG_NAME if required.node_name else NOT_SELECTED).reason)),
            *((held.only_nodes(), out_of_reach(held.claim_id, held.place)) for held in self._requirements.held),
        ]
        for name in nodes:
            if name not in verdicts:
                because = (reason for names, reason in exclusions if names is not None and name not in names)
                yield name, next(because, UNDIAGNOSED)


def _key(verdict: NodeVerdict, node: NodeState, snapshot: Snapshot, devices: DeviceJudge | None) -> Hashable:
    """Equal for verdicts about devices that have the same reason; None for other verdicts."""
    if devices is None or not isinstance(verdict, Lacking):
        return None
    return verdict.devices_key or devices.reason_key(node.offer.place, snapshot)


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
            return about_node(misfit.reason)
        case OutOfReach(claim_id, place):
            return out_of_reach(claim_id, place)


@lru_cache(maxsize=1024)
def about_node(sentence: str) -> Reason:
    """A reason that is a sentence about the node itself."""
    return Reason(cause=ReasonCause.NODE, subject=sentence)


def out_of_reach(claim_id: ClaimId, place: str) -> Reason:
    """That the node cannot use the devices that a claim has."""
    return about_node(f"claim {claim_id} is allocated on {place}, which this node cannot use")


def plugin_of(verdict: NodeVerdict) -> str:
    """The Kubernetes plugin that would have rejected the node."""
    return verdict.misfit.plugin if isinstance(verdict, Unfit) else DYNAMIC_RESOURCES


def plugins(verdicts: Iterable[NodeVerdict]) -> frozenset[str]:
    """The Kubernetes plugins that would have rejected the nodes."""
    return frozenset(map(plugin_of, verdicts))
