"""What pods need of nodes, which nodes do, and which of them is best: tables of sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from dralloc.api.codec import decode, encode
from dralloc.api.core_v1 import Node
from dralloc.api.pod_v1 import PodSpec
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.decide.node_fit import NodeRequirements, misfit
from dralloc.scheduler.decide.node_scores import RawScores, least_allocated, normalized, raw_scores
from dralloc.scheduler.state.cluster_events import NODE_RESOURCES_FREED
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.node_state import EMPTY, NodeOffer, NodeState
from dralloc.scheduler.state.pod_resources import resources_of
from tests.support.scheduled_cluster import node
from tests.support.workloads import Document, pod, seen


def spec(**members: Any) -> PodSpec:
    return decode(encode({"containers": [{"name": "main"}], **members}), PodSpec)


def container(name: str = "main", restart: str | None = None, **requests: str) -> Document:
    policy = {"restartPolicy": restart} if restart else {}
    return {"name": name, "resources": {"requests": requests}, **policy}


def state(document: Document, *pods: PodSpec) -> NodeState:
    load = EMPTY
    for there in pods:
        load = load.plus(resources_of(there))
    return NodeState(NodeOffer.of(decode(encode(document), Node)), load)


# --- What a pod needs -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NeedsCase:
    id: str
    spec: PodSpec
    want: dict[str, str]


NEEDS = [
    NeedsCase("nothing but a place", spec(), {"pods": "1"}),
    NeedsCase(
        "the sum of the containers",
        spec(containers=[container(cpu="1"), container("b", cpu="500m", memory="1Gi")]),
        {"cpu": "1500m", "memory": "1Gi", "pods": "1"},
    ),
    NeedsCase(
        "an initial container that needs more than the rest",
        spec(containers=[container(cpu="1")], initContainers=[container("init", cpu="3")]),
        {"cpu": "3", "pods": "1"},
    ),
    NeedsCase(
        "a sidecar that runs beside the containers, and beside what starts after it",
        spec(
            containers=[container(cpu="1")],
            initContainers=[
                container("early", cpu="2"),
                container("sidecar", "Always", cpu="1"),
                container("late", cpu="2"),
            ],
        ),
        {"cpu": "3", "pods": "1"},
    ),
    NeedsCase(
        "what the pod states as a whole, and its overhead on top",
        spec(
            containers=[container(cpu="1", memory="1Gi")],
            resources={"requests": {"cpu": "4"}},
            overhead={"memory": "1Gi"},
        ),
        {"cpu": "4", "memory": "2Gi", "pods": "1"},
    ),
    NeedsCase(
        "other resources, but not those it wants none of",
        spec(containers=[container(**{"example.com/fpga": "2", "example.com/none": "0"})]),
        {"example.com/fpga": "2", "pods": "1"},
    ),
]


@pytest.mark.parametrize("case", NEEDS, ids=lambda case: case.id)
def test_what_a_pod_needs(case: NeedsCase) -> None:
    assert resources_of(case.spec).amounts == {name: Quantity.parse(text).nanos for name, text in case.want.items()}


# --- Which nodes do ---------------------------------------------------------------------------------------------


def required(*requirements: Document) -> Document:
    terms = [{"matchExpressions": list(requirements)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def port(number: int, protocol: str = "TCP", address: str = "", **of_initial: str) -> PodSpec:
    """A pod that listens on a port of its host: its container does, or an initial one that has these members."""
    ports = [{"containerPort": number, "hostPort": number, "protocol": protocol, "hostIP": address}]
    listening = {"name": "listening", "ports": ports}
    return spec(initContainers=[{**listening, **of_initial}]) if of_initial else spec(containers=[listening])


@dataclass(frozen=True)
class FitCase:
    id: str
    spec: PodSpec = field(default_factory=spec)
    node: dict[str, Any] = field(default_factory=dict)
    there: tuple[PodSpec, ...] = ()
    want: str | None = None


TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
FPGA = spec(containers=[container(**{"example.com/fpga": "1"})])

FITS = [
    FitCase("an empty node takes a simple pod"),
    FitCase("a node that is unschedulable", node={"unschedulable": True}, want="unschedulable"),
    FitCase(
        "unless the pod tolerates it",
        spec(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        {"unschedulable": True},
    ),
    FitCase("the named node", spec(nodeName="node-a")),
    FitCase("not the named node", spec(nodeName="node-b"), want="not the node that the pod asks for"),
    FitCase("a taint", node={"taints": (TAINT,)}, want="taint gpu=only:NoSchedule is not tolerated"),
    FitCase(
        "a taint that is tolerated by its value",
        spec(tolerations=[{"key": "gpu", "value": "only"}]),
        {"taints": (TAINT,)},
    ),
    FitCase(
        "a toleration of another value",
        spec(tolerations=[{"key": "gpu", "value": "any"}]),
        {"taints": (TAINT,)},
        want="taint gpu=only:NoSchedule is not tolerated",
    ),
    FitCase(
        "a toleration of another effect",
        spec(tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]),
        {"taints": (TAINT,)},
        want="taint gpu=only:NoSchedule is not tolerated",
    ),
    FitCase("a toleration of everything", spec(tolerations=[{"operator": "Exists"}]), {"taints": (TAINT,)}),
    FitCase("a taint that is only a wish", node={"taints": ({"key": "slow", "effect": "PreferNoSchedule"},)}),
    FitCase("a label that is there", spec(nodeSelector={"zone": "east"}), {"labels": {"zone": "east"}}),
    FitCase(
        "a label of another value",
        spec(nodeSelector={"zone": "east"}),
        {"labels": {"zone": "west"}},
        want="node selector or affinity does not match",
    ),
    FitCase(
        "affinity that matches",
        spec(affinity=required({"key": "zone", "operator": "In", "values": ["east", "west"]})),
        {"labels": {"zone": "west"}},
    ),
    FitCase(
        "affinity that does not match",
        spec(affinity=required({"key": "zone", "operator": "Exists"})),
        want="node selector or affinity does not match",
    ),
    FitCase(
        "affinity without meaning selects nothing",
        spec(affinity=required({"key": "zone", "operator": "Around"})),
        want="node selector or affinity does not match",
    ),
    FitCase(
        "a port that is taken on one address and wanted on all",
        port(80),
        there=(port(81), port(80, "UDP"), port(80, address="10.0.0.2")),
        want="port 80 of the host is taken",
    ),
    FitCase("a port on another address", port(80, address="10.0.0.1"), there=(port(80, address="10.0.0.2"),)),
    FitCase(
        "a port that a sidecar wants",
        port(80, restartPolicy="Always"),
        there=(port(80),),
        want="port 80 of the host is taken",
    ),
    FitCase("a port that an initial container wants, which ends", port(80, image="i"), there=(port(80),)),
    FitCase("a port that an initial container had, which has ended", port(80), there=(port(80, image="i"),)),
    FitCase("a port of another protocol", port(80), there=(port(80, "UDP"),)),
    FitCase(
        "room for the last millicore",
        spec(containers=[container(cpu="3")]),
        there=(spec(containers=[container(cpu="1")]),),
    ),
    FitCase(
        "no room any more",
        spec(containers=[container(cpu="3001m", memory="64Gi")]),
        there=(spec(containers=[container(cpu="1")]),),
        want="insufficient cpu, memory",
    ),
    FitCase("no place any more", node={"pods": "1"}, there=(spec(),), want="too many pods"),
    FitCase("a resource that the node does not have", FPGA, want="insufficient example.com/fpga"),
    FitCase("a resource that the node has", FPGA, {"example.com/fpga": "1"}),
    FitCase(
        "a resource that is used up",
        FPGA,
        {"example.com/fpga": "1"},
        there=(FPGA,),
        want="insufficient example.com/fpga",
    ),
]


@pytest.mark.parametrize("case", FITS, ids=lambda case: case.id)
def test_which_nodes_do(case: FitCase) -> None:
    found = misfit(NodeRequirements.of(case.spec), state(node("node-a", **case.node), *case.there))
    assert (found.reason if found is not None else None) == case.want


def test_what_leaves_a_node_leaves_nothing_behind() -> None:
    one, other = port(80), spec(containers=[container(cpu="1", memory="1Gi")])
    load = EMPTY.plus(resources_of(one)).plus(resources_of(other)).minus(resources_of(one)).minus(resources_of(other))
    assert not any(load.amounts.values())
    assert not any(load.weights.values())
    assert load.ports == ()


# --- Pods whose size changes on their node ----------------------------------------------------------------------


@dataclass(frozen=True)
class ResizeCase:
    id: str
    # What the pod asks for, and what the node says that it has: allotted to it, and in force.
    asks: str
    allotted: str = ""
    in_force: str = ""
    conditions: tuple[Document, ...] = ()
    want: str = ""
    wakes: bool = False


RESIZES = [
    ResizeCase("nothing changes", "2", want="2"),
    ResizeCase("it grows, and the node has not heard of it", "3", want="3"),
    ResizeCase("it grows, and the node is about to do it", "3", "3", "2", want="3"),
    ResizeCase("it shrinks, and the node says nothing of sizes", "1", want="1", wakes=True),
    ResizeCase("it shrinks, and the node has not done it yet", "1", "1", "2", want="2"),
    ResizeCase("it has shrunk", "1", "1", "1", want="1", wakes=True),
    ResizeCase(
        "it asks for more than the node will ever have",
        "90",
        "2",
        "2",
        ({"type": "PodResizePending", "status": "True", "reason": "Infeasible"},),
        want="2",
    ),
]


@pytest.mark.parametrize("case", RESIZES, ids=lambda case: case.id)
def test_a_pod_counts_with_its_size_of_now(case: ResizeCase) -> None:
    cluster = ClusterState()
    cluster.node_changed(None, decode(encode(node("a")), Node))
    before = seen(pod("p", requests={"cpu": "2"}, node="a"))
    cluster.pod_changed(None, before)
    told = {
        "name": "main",
        "allocatedResources": {"cpu": case.allotted},
        "resources": {"requests": {"cpu": case.in_force}},
    }
    statuses = [told] if case.allotted else []
    document = pod("p", requests={"cpu": case.asks}, node="a")
    after = seen(document, containerStatuses=statuses, conditions=case.conditions)
    assert cluster.pod_changed(before, after) == ((NODE_RESOURCES_FREED,) if case.wakes else ())
    counted = ClusterState()
    counted.pod_changed(None, after)
    counted.node_changed(None, decode(encode(node("a")), Node))
    assert cluster.nodes["a"].load == counted.nodes["a"].load
    assert cluster.nodes["a"].load.amounts["cpu"] == Quantity.parse(case.want).nanos


# --- Which node is best -----------------------------------------------------------------------------------------


def test_emptier_nodes_are_better_and_pods_that_say_nothing_count_as_something() -> None:
    needs = resources_of(spec())
    empty, loaded = state(node("a")), state(node("b"), *[spec()] * 10)
    assert least_allocated(needs, empty) > least_allocated(needs, loaded)
    # 100m of 4 cores, and 200Mi of 32Gi.
    assert least_allocated(needs, empty) == (97 + 99) // 2


def test_a_node_without_cpu_and_memory_is_worth_nothing() -> None:
    assert least_allocated(resources_of(spec()), state({"metadata": {"name": "bare"}})) == 0


@dataclass(frozen=True)
class ScoreCase:
    id: str
    raws: tuple[RawScores, ...]
    want: tuple[int, ...]


SCORES = [
    ScoreCase("all equal: each is best", (RawScores(), RawScores(devices=0)), (500, 500)),
    ScoreCase("all equal, though not the first choice", (RawScores(devices=7),), (500,)),
    ScoreCase("first choice against second: all or nothing", (RawScores(devices=8), RawScores(devices=7)), (500, 300)),
    ScoreCase(
        "in between", (RawScores(devices=16), RawScores(devices=13), RawScores(devices=8)), (500, 300 + 2 * 62, 300)
    ),
    ScoreCase(
        "taints that are not wanted", (RawScores(taints=0), RawScores(taints=1), RawScores(taints=2)), (500, 350, 200)
    ),
    ScoreCase(
        "affinity, weighed against the best",
        (RawScores(affinity=80), RawScores(affinity=20), RawScores()),
        (700, 550, 500),
    ),
]


@pytest.mark.parametrize("case", SCORES, ids=lambda case: case.id)
def test_scores_mean_something_beside_the_other_nodes(case: ScoreCase) -> None:
    values = normalized(set(case.raws))
    assert tuple(values[raw] for raw in case.raws) == case.want


def test_raw_scores_count_taints_and_preferences() -> None:
    preferred = [
        {"weight": 30, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}},
        {"weight": 12, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}},
        {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}},
        {"weight": 90, "preference": {}},
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    taints = tuple({"key": key, "effect": "PreferNoSchedule"} for key in ("slow", "far"))
    found = state(node("a", labels={"zone": "east"}, taints=taints))
    wishes = NodeRequirements.of(spec(affinity=affinity, tolerations=[{"key": "far", "operator": "Exists"}]))
    assert raw_scores(wishes, found, 8) == RawScores(taints=1, affinity=35, devices=8)
