"""Required anti-affinity of placed pods: it excludes later pods from the topology domains of these pods.

Pods with required anti-affinity are placed by other schedulers (`unsupported_fields`); this scheduler only respects it. Labels
of namespaces are unknown here, so that a term with a namespace selector applies to all namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from dralloc.api.codec import encode
from dralloc.api.meta_v1 import LabelSelector, LabelSelectorRequirement
from dralloc.api.pod_v1 import Pod, PodAffinityTerm
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.placed_pods import pod_key

PodKey = tuple[str, str]


class ExcludedDomain(NamedTuple):
    """A topology domain that a pod is excluded from; `by` says by which pods."""

    topology_key: str
    value: str
    by: str


class _Term(Struct, frozen=True):
    """Excludes pods of these namespaces (None: of all) with matching labels from the topology domain."""

    namespaces: frozenset[str] | None
    selector: LabelSelector
    topology_key: str

    def concerns(self, pod: Pod) -> bool:
        is_meant = self.namespaces is None or pod.metadata.namespace in self.namespaces
        return is_meant and self.selector.selects(pod.metadata.labels)


class AntiAffinity:
    """The anti-affinity terms of placed pods. Pods with equal terms share one, so that many of them cost little."""

    def __init__(self) -> None:
        # The terms by their encoding, and the nodes of the pods that have them.
        self._terms: dict[bytes, _Term] = {}
        self._nodes: dict[bytes, dict[PodKey, str]] = {}
        self._texts: dict[PodKey, list[bytes]] = {}

    def add(self, pod: Pod) -> None:
        """Adds the terms of a pod that has a node."""
        for term in _terms_of(pod):
            text = encode((term.namespaces and sorted(term.namespaces), term.selector, term.topology_key))
            self._terms[text] = term
            self._nodes.setdefault(text, {})[pod_key(pod)] = pod.spec.node_name
            self._texts.setdefault(pod_key(pod), []).append(text)

    def remove(self, key: PodKey) -> None:
        for text in self._texts.pop(key, ()):
            self._nodes[text].pop(key, None)
            if not self._nodes[text]:
                del self._nodes[text], self._terms[text]

    def of(self, pod: Pod, nodes: Mapping[str, NodeState]) -> tuple[ExcludedDomain, ...]:
        """The topology domains that the pod is excluded from."""
        if not self._terms:
            return ()
        found = (self._by_term(text, pod, nodes) for text, term in self._terms.items() if term.concerns(pod))
        return tuple(sorted({domain for each in found for domain in each}))

    def _by_term(self, text: bytes, pod: Pod, nodes: Mapping[str, NodeState]) -> Iterator[ExcludedDomain]:
        owners, topology_key = self._nodes[text], self._terms[text].topology_key
        by = _described(pod, owners)
        for node in owners.values():
            value = nodes[node].offer.labels.get(topology_key) if node in nodes else None
            if value is not None:
                yield ExcludedDomain(topology_key, value, by)


def _described(pod: Pod, owners: Mapping[PodKey, str]) -> str:
    """The pods that have the term. Names of pods in other namespaces are confidential."""
    here = min((key for key in owners if key[0] == pod.metadata.namespace), default=None)
    if here is None:
        return "pods of another namespace"
    name = "/".join(here)
    return f"pod {name}" if len(owners) == 1 else f"pod {name} and others"


def _terms_of(pod: Pod) -> Iterator[_Term]:
    affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity is not None else None
    for stated in affinity.required_during_scheduling_ignored_during_execution if affinity is not None else ():
        if stated.label_selector is not None:
            yield _Term(_namespaces(pod, stated), _selector(pod, stated), stated.topology_key)


def _namespaces(pod: Pod, stated: PodAffinityTerm) -> frozenset[str] | None:
    if stated.namespace_selector is not None:
        return None
    return frozenset(stated.namespaces or (pod.metadata.namespace,))


def _selector(pod: Pod, stated: PodAffinityTerm) -> LabelSelector:
    """The term's label selector, with the requirements that `matchLabelKeys` and `mismatchLabelKeys` add."""
    selector = stated.label_selector or LabelSelector()
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=(pod.metadata.labels[key],))
        for operator, keys in (("In", stated.match_label_keys), ("NotIn", stated.mismatch_label_keys))
        for key in keys
        if key in pod.metadata.labels
    ]
    return replace(selector, match_expressions=(*selector.match_expressions, *added))
