"""Rules that depend on where other pods are: affinity between pods, and topology spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from dralloc.kube.codec import encode
from dralloc.kube.pod_v1 import Affinity, Pod, PodAffinity, PodAffinityTerm
from dralloc.primitives.work_allowance import check_work, work_done
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_fit import NodeMisfit, NodeRequirements
from dralloc.scheduler.decide.node_scores import SCORE_MAX
from dralloc.scheduler.decide.topology_spread import TopologySpreadRules
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_selection import PodSelection
from dralloc.scheduler.state.pod_topology import Domain, ExcludedDomain


class TopologyRules:
    """The rules for one pod at one moment."""

    def __init__(self, spread: TopologySpreadRules, affinity: PodAffinityRules) -> None:
        self._spread = spread
        self._affinity = affinity

    @classmethod
    def of(cls, pod: Pod, requirements: NodeRequirements, view: ClusterView) -> TopologyRules | None:
        """None if no rule concerns the pod, which is the common case."""
        stated = pod.spec.affinity
        states_affinity = stated is not None and (stated.pod_affinity or stated.pod_anti_affinity)
        if not (states_affinity or pod.spec.topology_spread_constraints or view.pod_topology.has_terms):
            return None
        spread, affinity = TopologySpreadRules(pod, requirements, view), PodAffinityRules(pod, view)
        return cls(spread, affinity) if spread or affinity else None

    def misfit(self, node: NodeState) -> NodeMisfit | None:
        return self._spread.misfit(node) or self._affinity.misfit(node)

    def scores(self, nodes: Collection[NodeState]) -> Mapping[str, int]:
        """What the rules add to the scores of these nodes, by name."""
        return Counter(self._spread.scores(nodes)) + Counter(self._affinity.scores(nodes))


def topology_rules_key(pod: Pod) -> bytes:
    """Equal for pods that the rules treat alike."""
    spec, metadata = pod.spec, pod.metadata
    return encode((metadata.namespace, metadata.labels, spec.affinity, spec.topology_spread_constraints))


# --- Pod affinity ---------------------------------------------------------------------------------------------------
# Affinity between pods, as Kubernetes' InterPodAffinity decides it: required terms of the pod and required anti-
# affinity of placed pods filter nodes, preferred terms of both score them.


PLUGIN: Final = "InterPodAffinity"
WEIGHT: Final = 2


class PodAffinityRules:
    """What the affinity of one pod, and that of placed pods to it, means for nodes."""

    def __init__(self, pod: Pod, view: ClusterView) -> None:
        affinity = pod.spec.affinity or Affinity()
        near, away = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
        self._pod = pod
        self._view = view
        self._near = _Terms(pod, near.required_during_scheduling_ignored_during_execution)
        self._away = _Terms(pod, away.required_during_scheduling_ignored_during_execution)
        self._preferred = tuple(_preferences(pod, near, away))
        self._excluded: Mapping[Domain, ExcludedDomain] = {
            each.domain: each for each in view.pod_topology.excluded_domains(pod, view.nodes)
        }
        self._weights = view.pod_topology.weights(pod, view.nodes)
        self._occupied = self._occupied_by_any(self._away.selections)
        self._joined = self._domains_to_join()
        # The first of a group of pods that want to be together has no pod to join.
        self._is_first = not self._joined and all(
            view.pod_topology.selects(selection, pod) for selection in self._near.selections
        )

    def __bool__(self) -> bool:
        """False if every node is as good as another."""
        return bool(self._near or self._away or self._preferred or self._excluded or self._weights)

    def misfit(self, node: NodeState) -> NodeMisfit | None:
        check_work()
        work_done(len(self._near.keys) + len(self._away.keys))
        labels = node.offer.labels
        for key in self._near.keys:
            if key not in labels:
                return NodeMisfit(PLUGIN, f"pod affinity needs the label {key}")
            if Domain(key, labels[key]) not in self._joined and not self._is_first:
                return NodeMisfit(PLUGIN, f"no pod that the pod affinity requires has the same {key}")
        for key, domains in zip(self._away.keys, self._occupied, strict=True):
            if labels.get(key) in domains:
                return NodeMisfit(PLUGIN, f"a pod that the pod anti-affinity excludes has the same {key}")
        for domain, excluded in self._excluded.items():
            if labels.get(domain.topology_key) == domain.value:
                return NodeMisfit(PLUGIN, f"excluded by the anti-affinity of {excluded.by}")
        return None

    def scores(self, nodes: Collection[NodeState]) -> Mapping[str, int]:
        """Between 0 for the least and 100 for the most wanted of these nodes, times the weight of the plugin."""
        weights = self._weights_with_preferences()
        if not weights:
            return {}
        raw = {node.name: _sum(weights, node) for node in nodes}
        least, most = min(raw.values(), default=0), max(raw.values(), default=0)
        if least == most:
            return {}
        return {name: WEIGHT * (SCORE_MAX * (each - least) // (most - least)) for name, each in raw.items()}

    def _weights_with_preferences(self) -> Mapping[Domain, int]:
        weights = Counter(self._weights)
        for selection, topology_key, weight in self._preferred:
            for domain, count in self._by_domain(topology_key, self._view.pod_topology.count(selection)).items():
                weights[domain] += weight * count
        return weights

    def _domains_to_join(self) -> frozenset[Domain]:
        """The domains with pods that all required terms mean."""
        if not self._near:
            return frozenset()
        counts = self._view.pod_topology.count_all_of(self._near.selections)
        return frozenset(domain for key in self._near.keys for domain in self._by_domain(key, counts))

    def _occupied_by_any(self, selections: Iterable[PodSelection]) -> tuple[frozenset[str], ...]:
        """For each term of the anti-affinity, the values of its label where pods are that it means."""
        counts = map(self._view.pod_topology.count, selections)
        pairs = zip(self._away.keys, counts, strict=True)
        return tuple(frozenset(domain.value for domain in self._by_domain(key, found)) for key, found in pairs)

    def _by_domain(self, topology_key: str, counts: Mapping[str, int]) -> Mapping[Domain, int]:
        found: Counter[Domain] = Counter()
        for name, count in counts.items():
            node = self._view.nodes.get(name)
            if count and node is not None and (value := node.offer.labels.get(topology_key)) is not None:
                found[Domain(topology_key, value)] += count
        return found


class _Terms:
    """Required terms: the label of each, and the pods that each means."""

    def __init__(self, pod: Pod, terms: tuple[PodAffinityTerm, ...]) -> None:
        self.keys = tuple(term.topology_key for term in terms)
        self.selections = tuple(PodSelection.of_term(pod, term) for term in terms)

    def __bool__(self) -> bool:
        return bool(self.keys)


def _preferences(pod: Pod, near: PodAffinity, away: PodAffinity) -> Iterator[tuple[PodSelection, str, int]]:
    for sign, affinity in ((1, near), (-1, away)):
        for each in affinity.preferred_during_scheduling_ignored_during_execution:
            term = each.pod_affinity_term
            yield PodSelection.of_term(pod, term), term.topology_key, sign * each.weight


def _sum(weights: Mapping[Domain, int], node: NodeState) -> int:
    labels = node.offer.labels
    return sum(weight for domain, weight in weights.items() if labels.get(domain.topology_key) == domain.value)
