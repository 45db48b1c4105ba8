"""Topology spread constraints, as Kubernetes' PodTopologySpread decides them: `DoNotSchedule` filters nodes, `ScheduleAnyway`
scores them. Constraints that Kubernetes assumes for pods without any are not used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from math import log
from typing import Final

from dralloc.kube.node_taints import is_tolerated
from dralloc.kube.pod_v1 import Pod, TopologySpreadConstraint
from dralloc.primitives.work_allowance import check_work, work_done
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_fit import REPELLING, NodeMisfit, NodeRequirements, is_selected
from dralloc.scheduler.decide.node_scores import SCORE_MAX
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_selection import PodSelection

PLUGIN: Final = "PodTopologySpread"
WEIGHT: Final = 2
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
HOSTNAME: Final = "kubernetes.io/hostname"
WORK_OF_NODE: Final = 5


class TopologySpreadRules:
    """What the constraints of one pod mean for nodes."""

    def __init__(self, pod: Pod, requirements: NodeRequirements, view: ClusterView) -> None:
        self._view = view
        made = [(each, _Constraint(pod, each, requirements, view)) for each in pod.spec.topology_spread_constraints]
        self._hard = tuple(rule for each, rule in made if each.when_unsatisfiable != SCHEDULE_ANYWAY)
        self._soft = tuple(rule for each, rule in made if each.when_unsatisfiable == SCHEDULE_ANYWAY)

    def __bool__(self) -> bool:
        return bool(self._hard or self._soft)

    def misfit(self, node: NodeState) -> NodeMisfit | None:
        for rule, (counts, least) in zip(self._hard, self._hard_counts, strict=True):
            value = node.offer.labels.get(rule.topology_key)
            if value is None:
                return NodeMisfit(PLUGIN, f"topology spread needs the label {rule.topology_key}")
            if counts.get(value, 0) + rule.counts_itself - least > rule.max_skew:
                where = f"{rule.topology_key}={value}"
                return NodeMisfit(PLUGIN, f"topology spread: {where} has its share of pods (maxSkew {rule.max_skew})")
        return None

    @cached_property
    def _hard_counts(self) -> tuple[tuple[Mapping[str, int], int], ...]:
        """For each hard constraint, the pods by value of its label, and the least number of a domain."""
        made: list[tuple[Mapping[str, int], int]] = []
        labelled = _labelled(self._view.nodes.values(), self._hard)
        for rule in self._hard:
            counts = rule.by_value(labelled)
            enough = len(counts) >= rule.min_domains
            made.append((counts, min(counts.values()) if enough else 0))
        return tuple(made)

    def scores(self, nodes: Collection[NodeState]) -> Mapping[str, int]:
        """Between 0 and 100 for the node where the fewest pods are, times the weight of the plugin."""
        if not self._soft:
            return {}
        labelled, counted_nodes = _labelled(nodes, self._soft), _labelled(self._view.nodes.values(), self._soft)
        totals = dict.fromkeys((node.name for node in labelled), 0.0)
        for rule in self._soft:
            counted = rule.by_value(counted_nodes)
            values = {node.offer.labels[rule.topology_key] for node in labelled}
            size = len(labelled) if rule.topology_key == HOSTNAME else len(values)
            for node in labelled:
                count = counted.get(node.offer.labels[rule.topology_key], 0)
                totals[node.name] += count * log(size + 2) + rule.max_skew - 1
        return _normalized({name: int(total + 0.5) for name, total in totals.items()})


class _Constraint:
    """One constraint of a pod."""

    def __init__(
        self, pod: Pod, stated: TopologySpreadConstraint, requirements: NodeRequirements, view: ClusterView
    ) -> None:
        self.topology_key = stated.topology_key
        self.max_skew = stated.max_skew
        self.min_domains = stated.min_domains or 1
        self._honors_affinity = stated.node_affinity_policy != "Ignore"
        self._honors_taints = stated.node_taints_policy == "Honor"
        self._requirements = requirements
        self._view = view
        self._selection = PodSelection.of_spread(pod, stated)
        self.counts_itself = int(view.pod_topology.selects(self._selection, pod))

    def by_value(self, nodes: Iterable[NodeState]) -> Mapping[str, int]:
        """The pods on those of the nodes that count, by the value of the label."""
        # Kubernetes counts no pods for a selector that selects all, but it counts the pod itself.
        on_nodes = self._view.pod_topology.count(self._selection) if not self._selection.selects_all else {}
        counts: Counter[str] = Counter()
        for node in nodes:
            check_work()
            work_done(WORK_OF_NODE)
            if self._is_counted(node):
                counts[node.offer.labels[self.topology_key]] += on_nodes.get(node.name, 0)
        return counts

    def _is_counted(self, node: NodeState) -> bool:
        if self._honors_affinity and not is_selected(self._requirements, node.offer):
            return False
        return not self._honors_taints or all(
            taint.effect not in REPELLING or is_tolerated(taint, self._requirements.tolerations)
            for taint in node.offer.taints
        )


def _labelled(nodes: Iterable[NodeState], rules: Collection[_Constraint]) -> list[NodeState]:
    """The nodes that have the labels of all constraints: only these count."""
    work_done(len(rules))
    return [node for node in nodes if all(rule.topology_key in node.offer.labels for rule in rules)]


def _normalized(raw: Mapping[str, int]) -> Mapping[str, int]:
    least, most = min(raw.values(), default=0), max(raw.values(), default=0)
    if not most:
        return dict.fromkeys(raw, WEIGHT * SCORE_MAX)
    return {name: WEIGHT * (SCORE_MAX * (most + least - each) // most) for name, each in raw.items()}
