"""Placed pods, for rules that compare pods by topology domains: whom a selection means, and whom their own terms concern.

A selection is counted once and kept current from then on, so that pods with equal constraints do not count again. Pods that
state no such rules pay for one entry.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from dralloc.kube.core_v1 import Namespace
from dralloc.kube.pod_v1 import Affinity, Pod, PodAffinity, PodAffinityTerm
from dralloc.primitives.work_allowance import check_work, work_done
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.placed_pods import PodKey, pod_key
from dralloc.scheduler.state.pod_selection import Labels, PodSelection

# Selections that are kept current; those that no pod asked about for longest are dropped.
SELECTIONS_MAX: Final = 256
# The weight of a required term of a placed pod for the scores of other pods, as in Kubernetes.
HARD_AFFINITY_WEIGHT: Final = 1


class Domain(NamedTuple):
    """The nodes with this value of the label `topology_key`."""

    topology_key: str
    value: str


class ExcludedDomain(NamedTuple):
    """A topology domain that a pod is excluded from; `by` says by which pods."""

    domain: Domain
    by: str


class _Occupant(Struct, frozen=True, gc=False):
    """A placed pod."""

    node: str
    labels: Labels
    is_terminating: bool
    terms: tuple[bytes, ...]


class _Term(Struct, frozen=True):
    """A term of placed pods about other pods. A required anti-affinity excludes, all others weigh."""

    selection: PodSelection
    topology_key: str
    weight: int
    excludes: bool = False

    def key(self) -> bytes:
        return b"%b\0%b\0%d\0%d" % (self.selection.key(), self.topology_key.encode(), self.weight, self.excludes)


class PodTopology:
    def __init__(self) -> None:
        self._occupants: dict[PodKey, _Occupant] = {}
        self._namespaces: dict[str, Labels] = {}
        # The terms of placed pods, and the nodes of the pods that have them. Pods with equal terms share one.
        self._terms: dict[bytes, _Term] = {}
        self._owners: dict[bytes, dict[PodKey, str]] = {}
        self._counted: OrderedDict[bytes, tuple[PodSelection, Counter[str]]] = OrderedDict()
        self._count_from: Callable[[PodSelection], Counter[str]] = self._count_all

    # --- Changes ----------------------------------------------------------------------------------------------------

    def put(self, pod: Pod, node: str) -> bool:
        """Adds or replaces the pod. False if nothing changed."""
        key = pod_key(pod)
        known = self._occupants.get(key)
        if (
            known is not None
            and (known.node, known.is_terminating) == (node, pod.is_terminating)
            and known.labels == pod.metadata.labels
        ):
            return False
        if known is not None:
            self.remove(key)
        terms = {term.key(): term for term in _terms_of(pod)} if pod.spec.affinity is not None else {}
        self._terms |= terms
        for text in terms:
            self._owners.setdefault(text, {})[key] = node
        self._occupants[key] = _Occupant(node, pod.metadata.labels, pod.is_terminating, tuple(terms))
        self._count(key, self._occupants[key], 1)
        return True

    def remove(self, key: PodKey) -> None:
        known = self._occupants.pop(key, None)
        if known is None:
            return
        self._count(key, known, -1)
        for text in known.terms:
            del self._owners[text][key]
            if not self._owners[text]:
                del self._owners[text], self._terms[text]

    def namespace_changed(self, before: Namespace | None, after: Namespace | None) -> bool:
        """False if the labels stay the same."""
        namespace = after or before
        assert namespace is not None
        name = namespace.metadata.name
        labels = after.metadata.labels if after is not None else None
        if self._namespaces.get(name) == labels:
            return False
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        self._counted.clear()
        return True

    def _count(self, key: PodKey, occupant: _Occupant, by: int) -> None:
        for selection, counts in self._counted.values():
            if self._is_selected(selection, key, occupant):
                counts[occupant.node] += by

    def _is_selected(self, selection: PodSelection, key: PodKey, occupant: _Occupant) -> bool:
        if selection.skips_terminating and occupant.is_terminating:
            return False
        return selection.includes(key[0], occupant.labels, self._namespaces.get(key[0], {}))

    def without(self, keys: Iterable[PodKey]) -> PodTopology:
        """The topology without these pods. This one stays as it is."""
        reduced = PodTopology()
        reduced._occupants, reduced._namespaces = dict(self._occupants), self._namespaces
        reduced._terms, reduced._owners = dict(self._terms), dict(self._owners)
        removed = [(key, found) for key in keys if (found := self._occupants.get(key)) is not None]
        for text in {text for _, found in removed for text in found.terms}:
            reduced._owners[text] = dict(self._owners[text])
        for key, _ in removed:
            reduced.remove(key)
        reduced._count_from = lambda selection: self._counts_without(selection, removed)
        return reduced

    def _counts_without(self, selection: PodSelection, removed: Iterable[tuple[PodKey, _Occupant]]) -> Counter[str]:
        counts = Counter(self.count(selection))
        for key, occupant in removed:
            counts[occupant.node] -= self._is_selected(selection, key, occupant)
        return counts

    @property
    def has_terms(self) -> bool:
        """True if a placed pod has an affinity to other pods."""
        return bool(self._terms)

    # --- Questions --------------------------------------------------------------------------------------------------

    def selects(self, selection: PodSelection, pod: Pod) -> bool:
        """True if the selection means the pod itself."""
        namespace = pod.metadata.namespace
        return selection.includes(namespace, pod.metadata.labels, self._namespaces.get(namespace, {}))

    def count(self, selection: PodSelection) -> Mapping[str, int]:
        """The number of placed pods that the selection means, by node."""
        key = selection.key()
        if key not in self._counted:
            check_work()
            work_done(len(self._occupants) * selection.work)
            self._counted[key] = selection, self._count_from(selection)
            if len(self._counted) > SELECTIONS_MAX:
                self._counted.popitem(last=False)
        self._counted.move_to_end(key)
        return self._counted[key][1]

    def _count_all(self, selection: PodSelection) -> Counter[str]:
        return Counter(
            occupant.node for pod, occupant in self._occupants.items() if self._is_selected(selection, pod, occupant)
        )

    def count_all_of(self, selections: tuple[PodSelection, ...]) -> Mapping[str, int]:
        """The number of placed pods that every one of the selections means, by node."""
        if len(selections) == 1:
            return self.count(selections[0])
        left = [*self._occupants.items()]
        for selection in selections:
            check_work()
            work_done(len(left) * selection.work)
            left = [item for item in left if self._is_selected(selection, *item)]
        return Counter(occupant.node for _, occupant in left)

    def excluded_domains(self, pod: Pod, nodes: Mapping[str, NodeState]) -> tuple[ExcludedDomain, ...]:
        """The domains that the required anti-affinity of placed pods keeps the pod from."""
        found: set[ExcludedDomain] = set()
        for text, term in self._concerned(pod):
            if term.excludes:
                by = _described(pod, self._owners[text])
                found.update(ExcludedDomain(domain, by) for domain in self._domains(text, term, nodes))
        return tuple(sorted(found))

    def weights(self, pod: Pod, nodes: Mapping[str, NodeState]) -> Mapping[Domain, int]:
        """How much the terms of placed pods attract the pod to domains, or keep it away."""
        weights: Counter[Domain] = Counter()
        for text, term in self._concerned(pod):
            if not term.excludes:
                for domain in self._domains(text, term, nodes):
                    weights[domain] += term.weight
        return weights

    def _concerned(self, pod: Pod) -> Iterator[tuple[bytes, _Term]]:
        """The terms of placed pods that mean the pod."""
        if not self._terms:
            return iter(())
        return (item for item in self._terms.items() if self.selects(item[1].selection, pod))

    def _domains(self, text: bytes, term: _Term, nodes: Mapping[str, NodeState]) -> Iterator[Domain]:
        """The domains of the pods that have the term, one for each pod."""
        for node in self._owners[text].values():
            value = nodes[node].offer.labels.get(term.topology_key) if node in nodes else None
            if value is not None:
                yield Domain(term.topology_key, value)


def _described(pod: Pod, owners: Mapping[PodKey, str]) -> str:
    """The pods that have the term. Names of pods in other namespaces are confidential."""
    here = min((key for key in owners if key[0] == pod.metadata.namespace), default=None)
    if here is None:
        return "pods of another namespace"
    name = "/".join(here)
    return f"pod {name}" if len(owners) == 1 else f"pod {name} and others"


def _terms_of(pod: Pod) -> Iterator[_Term]:
    affinity = pod.spec.affinity or Affinity()
    near, away = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()

    def term(stated: PodAffinityTerm, weight: int, *, excludes: bool = False) -> _Term:
        return _Term(PodSelection.of_term(pod, stated), stated.topology_key, weight, excludes)

    for stated in away.required_during_scheduling_ignored_during_execution:
        yield term(stated, 0, excludes=True)
    for stated in near.required_during_scheduling_ignored_during_execution:
        yield term(stated, HARD_AFFINITY_WEIGHT)
    for weighted in near.preferred_during_scheduling_ignored_during_execution:
        yield term(weighted.pod_affinity_term, weighted.weight)
    for weighted in away.preferred_during_scheduling_ignored_during_execution:
        yield term(weighted.pod_affinity_term, -weighted.weight)
