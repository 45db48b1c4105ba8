"""Rules about other pods, on random clusters: the same nodes are allowed, with the same scores, as by a plain model."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Namespace, Node
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import Placement, Rejection
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.node_fit import NodeRequirements
from dralloc.scheduler.decide.node_verdicts import Fits
from dralloc.scheduler.decide.topology_rules import TopologyRules
from dralloc.scheduler.state.cluster_state import ClusterState
from tests.scheduler.cluster_values import NOW
from tests.scheduler.decide.topology_model import Model
from tests.support.scheduled_cluster import node, our_pod
from tests.support.workloads import Document, pod, seen

KEYS = ("kubernetes.io/hostname", "zone", "rack")
NAMESPACES: dict[str, dict[str, str]] = {"default": {"team": "a"}, "other": {"team": "b"}, "third": {}}
LABELS: tuple[dict[str, str], ...] = ({"app": "web"}, {"app": "web", "track": "new"}, {"app": "db"}, {})


class Draw:
    """Random objects."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def maybe(self, members: Document) -> Document:
        return members if self.random.random() < 0.4 else {}

    def one_of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def selector(self) -> Document | None:
        return self.one_of({"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}}, {}, None)  # type: ignore[no-any-return]

    def some(self, make: Any, most: int) -> list[Any]:
        return [make() for _ in range(self.random.randint(0, most))]

    def term(self) -> Document:
        selector = self.selector()
        return {
            "topologyKey": self.one_of(*KEYS),
            **({"labelSelector": selector} if selector is not None else {}),
            **self.maybe({"namespaces": self.random.sample(sorted(NAMESPACES), 2)}),
            **self.maybe({"namespaceSelector": self.one_of({}, {"matchLabels": {"team": "b"}})}),
            **self.maybe({self.one_of("matchLabelKeys", "mismatchLabelKeys"): ["track"]}),
        }

    def side(self) -> Document:
        def preference() -> Document:
            return {"weight": self.random.randint(1, 100), "podAffinityTerm": self.term()}

        return {
            "requiredDuringSchedulingIgnoredDuringExecution": self.some(self.term, 1 + self.one_of(0, 0, 1)),
            "preferredDuringSchedulingIgnoredDuringExecution": self.some(preference, 2),
        }

    def affinity(self) -> Document:
        sides = {**self.maybe({"podAffinity": self.side()}), **self.maybe({"podAntiAffinity": self.side()})}
        return {"affinity": sides} if sides else {}

    def spread(self) -> Document:
        selector, when = self.selector(), self.one_of("DoNotSchedule", "ScheduleAnyway")
        return {
            "maxSkew": self.random.randint(1, 2),
            "topologyKey": self.one_of(*KEYS),
            "whenUnsatisfiable": when,
            **({"labelSelector": selector} if selector is not None else {}),
            **(self.maybe({"minDomains": self.random.randint(1, 3)}) if when == "DoNotSchedule" else {}),
            **self.maybe({"matchLabelKeys": ["track"]}),
            **self.maybe({"nodeAffinityPolicy": self.one_of("Honor", "Ignore")}),
            **self.maybe({"nodeTaintsPolicy": self.one_of("Honor", "Ignore")}),
        }

    def node(self, name: str) -> Document:
        labels = {**self.maybe({"rack": self.one_of("1", "2")})}
        if self.random.random() < 0.8:
            labels["zone"] = self.one_of("east", "west", "south")
        made = node(name, labels=labels)
        if self.random.random() < 0.2:
            made["spec"] = {"taints": [{"key": "k", "effect": self.one_of("NoSchedule", "PreferNoSchedule")}]}
        return made

    def placed_pod(self, number: int, nodes: list[Document]) -> Document:
        where = self.one_of(*nodes)["metadata"]["name"]
        made = pod(f"p{number}", node=where, namespace=self.one_of(*NAMESPACES), labels=self.one_of(*LABELS))
        made["spec"] |= self.affinity()
        if self.random.random() < 0.2:
            made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return made

    def new_pod(self) -> Document:
        made = our_pod("newcomer", namespace=self.one_of(*NAMESPACES), labels=self.one_of(*LABELS))
        made["spec"] |= self.affinity()
        made["spec"] |= self.maybe({"topologySpreadConstraints": self.some(self.spread, 2)})
        made["spec"] |= self.maybe({"nodeSelector": {"zone": "east"}})
        return made


def state_of(model: Model) -> ClusterState:
    cluster = ClusterState()
    for name, labels in model.namespaces.items():
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        cluster.namespace_changed(None, decode(encode(document), Namespace))
    for each in model.pods:
        cluster.pod_changed(None, seen(each))
    for each in model.nodes:
        cluster.node_changed(None, decode(encode(each), Node))
    return cluster


@pytest.mark.parametrize("block", range(10))
def test_random_clusters_agree_with_the_model(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        draw = Draw(seed)
        nodes = [draw.node(f"n{number}") for number in range(draw.random.randint(1, 6))]
        pods = [draw.placed_pod(number, nodes) for number in range(draw.random.randint(0, 8))]
        cluster = state_of(Model(nodes, pods, NAMESPACES))
        for number in range(100, 104):
            compare(seed, cluster, Model(nodes, pods, NAMESPACES), draw.new_pod())
            if pods:
                # Counts follow pods that leave, come, and change.
                gone = pods.pop(draw.random.randrange(len(pods)))
                cluster.pod_changed(seen(gone), None)
            pods.append(draw.placed_pod(number, nodes))
            cluster.pod_changed(None, seen(pods[-1]))
            before = pods[0]
            pods[0] = {**before, "metadata": {**before["metadata"], "labels": draw.one_of(*LABELS)}}
            cluster.pod_changed(seen(before), seen(pods[0]))


def compare(seed: int, cluster: ClusterState, model: Model, document: Document) -> None:
    asked = seen(document)
    rules = TopologyRules.of(asked, NodeRequirements.of(asked.spec), cluster)
    allowed = {name for name, state in cluster.nodes.items() if rules is None or rules.misfit(state) is None}
    assert allowed == {each["metadata"]["name"] for each in model.nodes if model.allows(document, each)}, seed
    added = rules.scores(list(cluster.nodes.values())) if rules is not None else {}
    expected = model.scores(document, list(model.nodes))
    names = [each["metadata"]["name"] for each in model.nodes]
    assert [added.get(name, 0) for name in names] == expected, seed
    cycle = Cycle(cluster, FeatureGates.defaults())
    fitting = {name for name, verdict in cycle.verdicts(asked).items() if isinstance(verdict, Fits)}
    decision = cycle.decide(asked, NOW)
    if fitting:
        assert isinstance(decision, Placement)
        assert decision.node in fitting <= allowed
    else:
        assert isinstance(decision, Rejection)
