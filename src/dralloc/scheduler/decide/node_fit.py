"""Whether a node can take a pod, devices aside, and why not.

The checks of Kubernetes' NodeUnschedulable, NodeName, TaintToleration, NodeAffinity, NodePorts and NodeResourcesFit, in this
order. The first that fails is the reason; it names the resources that are insufficient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from dralloc.devices.node_selectors import NAME_FIELD, IndexedSelector, NodeSelectorError, matches
from dralloc.devices.taints import text_of_taint
from dralloc.kube.core_v1 import Taint
from dralloc.kube.meta_v1 import NodeSelector, NodeSelectorTerm
from dralloc.kube.node_taints import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE, is_tolerated
from dralloc.kube.pod_v1 import PodSpec, PreferredSchedulingTerm, Toleration
from dralloc.scheduler.state.node_state import NodeOffer, NodeState
from dralloc.scheduler.state.pod_resources import PODS, PodResources, resources_of

UNSCHEDULABLE_TAINT: Final = Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE)
REPELLING: Final = (NO_SCHEDULE, NO_EXECUTE)
# A pod can ask for as many resources as fit into a request. A reason names the first ones that are insufficient.
RESOURCES_NAMED_MAX: Final = 16


class NodeMisfit(NamedTuple):
    """Why a node cannot take a pod. `plugin` is the name of the check in Kubernetes, for metrics."""

    plugin: str
    reason: str


WRONG_NAME: Final = NodeMisfit("NodeName", "does not match spec.nodeName")
NOT_SELECTED: Final = NodeMisfit("NodeAffinity", "node selector or affinity does not match")


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """What a pod requires of a node, devices aside."""

    resources: PodResources
    node_name: str = ""
    node_labels: Mapping[str, str] | None = None
    required: NodeSelector | None = None
    # The same, for many nodes.
    selects: IndexedSelector | None = field(default=None, compare=False)
    preferred: tuple[PreferredSchedulingTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    @classmethod
    def of(cls, spec: PodSpec) -> NodeRequirements:
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
        return cls(
            resources=resources_of(spec),
            node_name=spec.node_name,
            node_labels=spec.node_selector,
            required=required,
            selects=IndexedSelector(required) if required is not None else None,
            preferred=affinity.preferred_during_scheduling_ignored_during_execution if affinity else (),
            tolerations=spec.tolerations,
        )

    def only_nodes(self) -> frozenset[str] | None:
        """The names of the only possible nodes; None if the pod names none."""
        if self.node_name:
            return frozenset({self.node_name})
        return names_in(self.required) if self.required is not None else None


def names_in(selector: NodeSelector) -> frozenset[str] | None:
    """The names of the only nodes that the selector can match; None if it selects by something else."""
    names: set[str] = set()
    for term in selector.node_selector_terms or ():
        named = [field.values for field in term.match_fields if (field.key, field.operator) == (NAME_FIELD, "In")]
        if not named:
            return None
        names.update(*named)
    return frozenset(names)


def misfit(requirements: NodeRequirements, node: NodeState) -> NodeMisfit | None:
    """Why the node cannot take the pod; None if it can."""
    return misfit_of_offer(requirements, node.offer) or misfit_of_load(requirements.resources, node)


def misfit_of_offer(requirements: NodeRequirements, offer: NodeOffer) -> NodeMisfit | None:
    """Why the node cannot take the pod, whatever pods it has."""
    if offer.is_unschedulable and not is_tolerated(UNSCHEDULABLE_TAINT, requirements.tolerations):
        return NodeMisfit("NodeUnschedulable", "unschedulable")
    if requirements.node_name and requirements.node_name != offer.name:
        return WRONG_NAME
    for taint in offer.taints:
        if taint.effect in REPELLING and not is_tolerated(taint, requirements.tolerations):
            return NodeMisfit("TaintToleration", f"taint {text_of_taint(taint)} is not tolerated")
    return None if is_selected(requirements, offer) else NOT_SELECTED


def misfit_of_load(resources: PodResources, node: NodeState) -> NodeMisfit | None:
    """Why the node has no room for the pod beside its other pods."""
    if resources.port_table is not None:
        taken = next(filter(resources.port_table.clashes_with, node.load.ports), None)
        if taken is not None:
            return NodeMisfit("NodePorts", f"host port {taken.number} is in use")
    free = node.free
    for name, nanos in resources.amounts.items():
        if nanos > free.get(name, 0):
            short = (name for name, nanos in resources.amounts.items() if nanos > free.get(name, 0))
            return shortage(*islice(short, RESOURCES_NAMED_MAX + 1))
    return None


def is_selected(requirements: NodeRequirements, offer: NodeOffer) -> bool:
    """True if the pod's node selector and required node affinity select the node."""
    labels = offer.labels
    if requirements.node_labels and any(labels.get(key) != value for key, value in requirements.node_labels.items()):
        return False
    if requirements.selects is None:
        return True
    try:
        return requirements.selects.matches(offer.place)
    except NodeSelectorError:
        # An invalid selector matches no node, as in Kubernetes.
        return False


def preference_matches(term: NodeSelectorTerm, offer: NodeOffer) -> bool:
    try:
        return matches(NodeSelector(node_selector_terms=(term,)), offer.place)
    except NodeSelectorError:
        return False


@lru_cache(maxsize=1024)
def shortage(*short: str) -> NodeMisfit:
    """That the node has too little left of these resources; of more than are named, there is one."""
    more = " and others" if len(short) > RESOURCES_NAMED_MAX else ""
    named = ", ".join(sorted(short[:RESOURCES_NAMED_MAX]))
    reason = "too many pods" if short == (PODS,) else f"insufficient {named}{more}"
    return NodeMisfit("NodeResourcesFit", reason)
