"""Pods that keep others away: the required anti-affinity of a pod that has a node holds for those that come after it, too.

Whoever asks for it is placed by another scheduler (`unsupported`); here its wish is only respected. A namespace is known by its
name alone, so that a term which selects namespaces by their labels is taken to mean all of them.
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


class Repelled(NamedTuple):
    """Nodes with this value of this label are not for the pod, because of those who are `kept_by`."""

    topology_key: str
    value: str
    kept_by: str


class _Term(Struct, frozen=True):
    """Pods of these namespaces (None: of all) with such labels are kept away from nodes that have this label in common."""

    namespaces: frozenset[str] | None
    selector: LabelSelector
    topology_key: str

    def concerns(self, pod: Pod) -> bool:
        is_meant = self.namespaces is None or pod.metadata.namespace in self.namespaces
        return is_meant and self.selector.selects(pod.metadata.labels)


class Repulsion:
    """Who keeps whom away from where. Pods of one make share their terms, so that many of them cost little."""

    def __init__(self) -> None:
        # The terms, by what they say, and the nodes of the pods that have them.
        self._terms: dict[bytes, _Term] = {}
        self._nodes: dict[bytes, dict[PodKey, str]] = {}
        self._texts: dict[PodKey, list[bytes]] = {}

    def add(self, pod: Pod) -> None:
        """The pod has a node."""
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

    def of(self, pod: Pod, nodes: Mapping[str, NodeState]) -> tuple[Repelled, ...]:
        """Where the pod cannot go."""
        if not self._terms:
            return ()
        found = (self._by_term(text, pod, nodes) for text, term in self._terms.items() if term.concerns(pod))
        return tuple(sorted({repelled for each in found for repelled in each}))

    def _by_term(self, text: bytes, pod: Pod, nodes: Mapping[str, NodeState]) -> Iterator[Repelled]:
        keepers, topology_key = self._nodes[text], self._terms[text].topology_key
        kept_by = _told(pod, keepers)
        for node in keepers.values():
            value = nodes[node].offer.labels.get(topology_key) if node in nodes else None
            if value is not None:
                yield Repelled(topology_key, value, kept_by)


def _told(pod: Pod, keepers: Mapping[PodKey, str]) -> str:
    """Who it is. What other namespaces hold is not for the pod to know."""
    here = min((key for key in keepers if key[0] == pod.metadata.namespace), default=None)
    if here is None:
        return "pods of another namespace"
    name = "/".join(here)
    return f"pod {name}" if len(keepers) == 1 else f"pod {name} and others"


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
    """With what the pod's own labels add to it."""
    selector = stated.label_selector or LabelSelector()
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=(pod.metadata.labels[key],))
        for operator, keys in (("In", stated.match_label_keys), ("NotIn", stated.mismatch_label_keys))
        for key in keys
        if key in pod.metadata.labels
    ]
    return replace(selector, match_expressions=(*selector.match_expressions, *added))
