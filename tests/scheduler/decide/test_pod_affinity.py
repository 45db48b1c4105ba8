"""Affinity between pods: required terms of a pod and of placed pods filter nodes, preferred ones score them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import Placement, Rejection
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.state.cluster_state import ClusterState
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod
from tests.support.workloads import Document, pod, seen

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEB = {"matchLabels": {"app": "web"}}
ZONES = {"a": "east", "b": "east", "c": "west"}


def lonely(name: str, *terms: Document, on: str = "a", namespace: str = "default") -> Document:
    """A pod on a node with required anti-affinity to the pods that the terms select."""
    document = pod(name, node=on, namespace=namespace, labels={"app": "web", "track": "new"})
    document["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}
    return document


def term(selector: Document | None = WEB, key: str = "kubernetes.io/hostname", **more: object) -> Document:
    return {"topologyKey": key, **more} | ({"labelSelector": selector} if selector is not None else {})


@dataclass(frozen=True)
class AntiAffinityCase:
    id: str
    there: tuple[Document, ...]
    labels: dict[str, str] = field(default_factory=lambda: {"app": "web"})
    namespace: str = "default"
    # The nodes that the new pod must avoid.
    want: str = "a"
    told: str = "pod default/e"


OTHERS = "pods of another namespace"
CASES = [
    AntiAffinityCase("from its node", (lonely("e", term()),)),
    AntiAffinityCase("from its zone", (lonely("e", term(key="zone")),), want="ab"),
    AntiAffinityCase("from nowhere where its node has no such label", (lonely("e", term(key="rack")),), want=""),
    AntiAffinityCase("from nowhere while its node is not known", (lonely("e", term(), on="z"),), want=""),
    AntiAffinityCase("pods with other labels are welcome", (lonely("e", term()),), {"app": "db"}, want=""),
    AntiAffinityCase("pods of other namespaces are welcome", (lonely("e", term()),), namespace="other", want=""),
    AntiAffinityCase(
        "pods of namespaces that it names", (lonely("e", term(namespaces=["other"])),), namespace="other", told=OTHERS
    ),
    AntiAffinityCase(
        "pods of all namespaces", (lonely("e", term(namespaceSelector={})),), namespace="other", told=OTHERS
    ),
    AntiAffinityCase("all pods", (lonely("e", term({})),), {}),
    AntiAffinityCase("a term without a selector selects no pod", (lonely("e", term(None)),), want=""),
    AntiAffinityCase(
        "pods by an expression", (lonely("e", term({"matchExpressions": [{"key": "app", "operator": "Exists"}]})),)
    ),
    AntiAffinityCase("only pods of the same track", (lonely("e", term(matchLabelKeys=["track"])),), want=""),
    AntiAffinityCase("only pods of another track", (lonely("e", term(mismatchLabelKeys=["track"])),)),
    AntiAffinityCase("either term", (lonely("e", term({"matchLabels": {"app": "db"}}), term()),)),
    AntiAffinityCase(
        "several pods of one make",
        (lonely("f", term()), lonely("e", term(), on="c")),
        want="ac",
        told="pod default/e and others",
    ),
    AntiAffinityCase(
        "everywhere",
        (lonely("e", term(key="zone")), lonely("f", term(key="zone"), on="c")),
        want="abc",
        told="pod default/e and others",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_required_anti_affinity_of_pods_on_nodes(case: AntiAffinityCase) -> None:
    cluster = ClusterState()
    for document in case.there:
        cluster.pod_changed(None, seen(document))
    for name, zone in ZONES.items():
        cluster.node_changed(None, decode(encode(node(name, labels={"zone": zone})), Node))
    cycle = Cycle(cluster, FeatureGates.defaults())

    def refusals() -> dict[str, str]:
        """The message for a new pod that names the node, by node."""
        told: dict[str, str] = {}
        for name in ZONES:
            document = our_pod("newcomer", labels=case.labels, namespace=case.namespace)
            document["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
            decision = cycle.decide(seen(document), NOW)
            if not isinstance(decision, Placement):
                told[name] = decision.message
        return told

    before = refusals()
    assert "".join(before) == case.want
    assert all(f"1 node: excluded by the anti-affinity of {case.told}" in message for message in before.values())
    for document in case.there:
        cluster.pod_changed(seen(document), None)
    assert not refusals()


def test_pods_with_other_labels_are_not_in_the_same_group() -> None:
    cluster = ClusterState()
    cluster.node_changed(None, decode(encode(node("a")), Node))
    cluster.pod_changed(None, seen(lonely("e", term())))
    cycle = Cycle(cluster, FeatureGates.defaults())
    decisions = [cycle.decide(seen(our_pod("p", labels={"app": "web", "of": name})), NOW) for name in "xxy"]
    first, second, third = (decision.equivalence_key for decision in decisions if isinstance(decision, Rejection))
    assert first == second != third


@in_cluster()
async def test_a_pod_is_scheduled_when_the_pod_that_repels_it_is_gone(cluster: ScheduledCluster) -> None:
    await cluster.create(node("a"), lonely("e", term()))
    await cluster.create(*(our_pod(name, labels={"app": "web"}) for name in ("stays", "changes")))
    await cluster.settle()
    assert [await cluster.node_of(name) for name in ("stays", "changes")] == ["", ""]
    await cluster.client.patch(Pod, "changes", {"metadata": {"labels": {"app": "db"}}})
    await cluster.settle()
    assert [await cluster.node_of(name) for name in ("stays", "changes")] == ["", "a"]
    await cluster.client.patch(Pod, "e", {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.settle()
    assert await cluster.node_of("stays") == "a"
