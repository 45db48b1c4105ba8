"""Which pods an affinity term or a spread constraint means, with its namespaces and `matchLabelKeys` resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dralloc.kube.codec import encode
from dralloc.kube.meta_v1 import LabelSelector, LabelSelectorRequirement
from dralloc.kube.pod_v1 import Pod, PodAffinityTerm, TopologySpreadConstraint

Labels = Mapping[str, str]
WORK_OF_PART: Final = 5


class PodSelection(Struct, frozen=True):
    """Pods of these namespaces, or of namespaces with these labels, that the selector selects. Without a selector: no pod.

    `skips_terminating`: pods that are being deleted do not count.
    """

    namespaces: frozenset[str]
    selector: LabelSelector | None
    namespace_selector: LabelSelector | None = None
    skips_terminating: bool = False

    @classmethod
    def of_term(cls, pod: Pod, term: PodAffinityTerm) -> PodSelection:
        """Of a term of the pod. A term without namespaces means the pod's own."""
        own = () if term.namespaces or term.namespace_selector is not None else (pod.metadata.namespace,)
        selector = _with_label_keys(pod, term.label_selector, In=term.match_label_keys, NotIn=term.mismatch_label_keys)
        return cls(frozenset((*term.namespaces, *own)), selector, term.namespace_selector)

    @classmethod
    def of_spread(cls, pod: Pod, constraint: TopologySpreadConstraint) -> PodSelection:
        selector = _with_label_keys(pod, constraint.label_selector, In=constraint.match_label_keys)
        return cls(frozenset({pod.metadata.namespace}), selector, skips_terminating=True)

    @property
    def selects_all(self) -> bool:
        """True if the selector requires nothing."""
        return self.selector is not None and not (self.selector.match_labels or self.selector.match_expressions)

    def includes(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """True for a pod of the namespace with these labels; `namespace_labels` are those of the namespace."""
        if self.selector is None or not self.selector.selects(labels):
            return False
        by_labels = self.namespace_selector is not None and self.namespace_selector.selects(namespace_labels)
        return by_labels or namespace in self.namespaces

    @property
    def work(self) -> int:
        """What it takes to compare it with a pod (`work_allowance`)."""
        if self.selector is None:
            return 1
        values = sum(1 + len(each.values) // 16 for each in self.selector.match_expressions)
        return WORK_OF_PART * (1 + len(self.selector.match_labels) // 16 + values)

    def key(self) -> bytes:
        """Equal for selections of the same pods."""
        return encode((sorted(self.namespaces), self.selector, self.namespace_selector, self.skips_terminating))


def _with_label_keys(pod: Pod, selector: LabelSelector | None, **keys: tuple[str, ...]) -> LabelSelector | None:
    """The selector, with the requirements that keys of the pod's own labels add, by operator."""
    if selector is None:
        return None
    labels = pod.metadata.labels
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for operator, named in keys.items()
        for key in named
        if key in labels
    ]
    return replace(selector, match_expressions=(*selector.match_expressions, *added)) if added else selector
