"""Kubernetes' rules for pod affinity and topology spread, written down once more from pods and nodes alone: no index, no sharing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log
from typing import Any

from tests.support.workloads import Document

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Model:
    nodes: Sequence[Document]
    pods: Sequence[Document]
    namespaces: Mapping[str, Labels]

    # --- Which pods are meant ---------------------------------------------------------------------------------------

    def means(self, owner: Document, term: Document, pod: Document) -> bool:
        namespace = pod["metadata"]["namespace"]
        named = term.get("namespaces", [])
        by_label = term.get("namespaceSelector")
        if not named and by_label is None:
            in_namespace = namespace == owner["metadata"]["namespace"]
        else:
            in_namespace = namespace in named or (
                by_label is not None and selected(by_label, self.namespaces.get(namespace, {}))
            )
        return in_namespace and by_selector(owner, term, pod)

    # --- Filters ----------------------------------------------------------------------------------------------------

    def allows(self, pod: Document, node: Document) -> bool:
        return self._spread_allows(pod, node) and self._affinity_allows(pod, node)

    def _spread_allows(self, pod: Document, node: Document) -> bool:
        hard = [each for each in spreads(pod) if each["whenUnsatisfiable"] == "DoNotSchedule"]
        for rule in hard:
            key = rule["topologyKey"]
            if key not in labels_of(node):
                return False
            domains: dict[str, int] = {}
            for other in self.nodes:
                if all(each["topologyKey"] in labels_of(other) for each in hard) and counts(pod, rule, other):
                    value = labels_of(other)[key]
                    domains[value] = domains.get(value, 0) + self._spread_pods(pod, rule, other)
            least = min(domains.values()) if len(domains) >= rule.get("minDomains", 1) else 0
            itself = int(by_selector(pod, rule, pod))
            if domains.get(labels_of(node)[key], 0) + itself - least > rule["maxSkew"]:
                return False
        return True

    def _spread_pods(self, pod: Document, rule: Document, node: Document) -> int:
        keys = [key for key in rule.get("matchLabelKeys", []) if key in labels_of(pod)]
        if rule.get("labelSelector") == {} and not keys:
            # Kubernetes looks for no pods then.
            return 0
        return sum(
            other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and "deletionTimestamp" not in other["metadata"]
            and by_selector(pod, rule, other)
            for other in self._on(node)
        )

    def _affinity_allows(self, pod: Document, node: Document) -> bool:
        wanted, unwanted = terms(pod, "podAffinity"), terms(pod, "podAntiAffinity")
        if wanted and not self._joins(pod, wanted, node):
            return False
        if any(self._near(node, term, lambda other, term=term: self.means(pod, term, other)) for term in unwanted):
            return False
        return not any(
            self.means(other, term, pod) and same_domain(node, there, term["topologyKey"])
            for there in self.nodes
            for other in self._on(there)
            for term in terms(other, "podAntiAffinity")
        )

    def _joins(self, pod: Document, wanted: Sequence[Document], node: Document) -> bool:
        if any(term["topologyKey"] not in labels_of(node) for term in wanted):
            return False

        def matches_all(other: Document) -> bool:
            return all(self.means(pod, term, other) for term in wanted)

        if all(self._near(node, term, matches_all) for term in wanted):
            return True
        is_first = not any(
            matches_all(other) and any(term["topologyKey"] in labels_of(there) for term in wanted)
            for there in self.nodes
            for other in self._on(there)
        )
        return is_first and matches_all(pod)

    def _near(self, node: Document, term: Document, is_meant: Any) -> bool:
        return any(
            same_domain(node, there, term["topologyKey"]) and any(is_meant(other) for other in self._on(there))
            for there in self.nodes
        )

    # --- Scores -----------------------------------------------------------------------------------------------------

    def scores(self, pod: Document, nodes: Sequence[Document]) -> list[int]:
        spread, affinity = self._spread_scores(pod, nodes), self._affinity_scores(pod, nodes)
        return [2 * each + 2 * other for each, other in zip(spread, affinity, strict=True)]

    def _affinity_scores(self, pod: Document, nodes: Sequence[Document]) -> list[int]:
        raw = [sum(self._attractions(pod, node)) for node in nodes]
        least, most = min(raw, default=0), max(raw, default=0)
        return [100 * (each - least) // (most - least) if most > least else 0 for each in raw]

    def _attractions(self, pod: Document, node: Document) -> Iterator[int]:
        for there in self.nodes:
            for other in self._on(there):
                for mine, yours in ((pod, other), (other, pod)):
                    for weight, term in weighted(mine, requires=mine is other):
                        if self.means(mine, term, yours) and same_domain(node, there, term["topologyKey"]):
                            yield weight

    def _spread_scores(self, pod: Document, nodes: Sequence[Document]) -> list[int]:
        soft = [each for each in spreads(pod) if each["whenUnsatisfiable"] == "ScheduleAnyway"]
        if not soft:
            return [0 for _ in nodes]

        def is_labelled(node: Document) -> bool:
            return all(each["topologyKey"] in labels_of(node) for each in soft)

        labelled = [node for node in nodes if is_labelled(node)]
        raw: dict[str, int] = {}
        for node in labelled:
            total = 0.0
            for rule in soft:
                key = rule["topologyKey"]
                size = len({labels_of(each)[key] for each in labelled})
                count = sum(
                    self._spread_pods(pod, rule, other)
                    for other in self.nodes
                    if is_labelled(other) and counts(pod, rule, other) and same_domain(node, other, key)
                )
                total += count * log(size + 2) + rule["maxSkew"] - 1
            raw[node["metadata"]["name"]] = floor(total + 0.5)
        least, most = min(raw.values(), default=0), max(raw.values(), default=0)
        return [
            0
            if (each := raw.get(node["metadata"]["name"])) is None
            else 100 * (most + least - each) // most
            if most
            else 100
            for node in nodes
        ]

    def _on(self, node: Document) -> list[Document]:
        return [pod for pod in self.pods if pod["spec"]["nodeName"] == node["metadata"]["name"]]


def labels_of(document: Document) -> Labels:
    return document["metadata"].get("labels", {})  # type: ignore[no-any-return]


def spreads(pod: Document) -> list[Document]:
    return pod["spec"].get("topologySpreadConstraints", [])  # type: ignore[no-any-return]


def terms(pod: Document, side: str) -> list[Document]:
    stated = pod["spec"].get("affinity", {}).get(side, {})
    return stated.get("requiredDuringSchedulingIgnoredDuringExecution", [])  # type: ignore[no-any-return]


def weighted(pod: Document, *, requires: bool) -> Iterator[tuple[int, Document]]:
    """The preferred terms; with `requires`, the required ones, too."""
    affinity = pod["spec"].get("affinity", {})
    for side, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for each in affinity.get(side, {}).get("preferredDuringSchedulingIgnoredDuringExecution", []):
            yield sign * each["weight"], each["podAffinityTerm"]
    if requires:
        yield from ((1, term) for term in terms(pod, "podAffinity"))


def same_domain(one: Document, other: Document, key: str) -> bool:
    return key in labels_of(one) and labels_of(one)[key] == labels_of(other).get(key)


def by_selector(owner: Document, rule: Document, pod: Document) -> bool:
    """True if the label selector of the owner's rule, with its label keys, selects the pod."""
    if rule.get("labelSelector") is None:
        return False
    mine, yours = labels_of(owner), labels_of(pod)
    return (
        selected(rule["labelSelector"], yours)
        and all(yours.get(key) == mine[key] for key in rule.get("matchLabelKeys", []) if key in mine)
        and all(yours.get(key) != mine[key] for key in rule.get("mismatchLabelKeys", []) if key in mine)
    )


def selected(selector: Document, labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def counts(pod: Document, rule: Document, node: Document) -> bool:
    """True if the node takes part in the constraint."""
    if rule.get("nodeAffinityPolicy") != "Ignore" and not selected(
        {"matchLabels": pod["spec"].get("nodeSelector", {})}, labels_of(node)
    ):
        return False
    taints = node.get("spec", {}).get("taints", [])
    return rule.get("nodeTaintsPolicy") != "Honor" or all(taint["effect"] == "PreferNoSchedule" for taint in taints)
