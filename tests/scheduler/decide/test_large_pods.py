"""What a pod of megabytes costs the scheduler does not grow with the product of its lists and the nodes."""

from __future__ import annotations

import cProfile
from typing import Any

import pytest

from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.node_state import EMPTY
from dralloc.scheduler.state.pod_resources import HostPort, PodResources, PortTable
from tests.scheduler.cluster_values import NOW
from tests.support.scheduled_cluster import node, our_pod
from tests.support.workloads import Document, seen

COUNT = 2_000
FEW, MANY = 5, 45
NAME = "kubernetes.io/hostname"


def requires(*terms: Document) -> Document:
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def listed(operator: str, *values: str) -> Document:
    return {"matchExpressions": [{"key": NAME, "operator": operator, "values": values}]}


def container(**more: Any) -> Document:
    return {"name": "c", "image": "x", **more}


def spread(number: int) -> Document:
    selector = {"matchLabels": {"app": "web"}}
    return {
        "maxSkew": 1,
        "topologyKey": f"key-{number}",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }


NUMBERS = range(COUNT)
SPECS = {
    "values of an affinity": requires(listed("In", *(f"other-{number}" for number in NUMBERS))),
    "terms of an affinity": requires(*(listed("In", f"other-{number}") for number in NUMBERS)),
    "host ports": {
        "containers": [container(ports=[{"containerPort": number + 1, "hostPort": number + 1} for number in NUMBERS])]
    },
    "spread constraints": {"topologySpreadConstraints": [spread(number) for number in NUMBERS]},
    "extended resources": {
        "containers": [container(resources={"requests": {f"example.com/r{number}": "1" for number in NUMBERS}})]
    },
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_node_costs_little(spec: Document) -> None:
    per_node = (calls_of_decision(spec, MANY) - calls_of_decision(spec, FEW)) / (MANY - FEW)
    assert per_node < COUNT / 2


def calls_of_decision(spec: Document, nodes: int) -> int:
    state = ClusterState()
    for number in range(nodes):
        state.node_changed(None, decode(encode(node(f"n{number}", labels={NAME: f"n{number}"})), Node))
    made = our_pod("large")
    pod = seen({**made, "spec": {**made["spec"], **spec}})
    profile = cProfile.Profile()
    profile.enable()
    Cycle(state, FeatureGates.defaults()).decide(pod, NOW)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def test_ports_of_many_pods_are_looked_up() -> None:
    """Each is compared with those of its number."""
    addresses = ("0.0.0.0", "10.0.0.1", "10.0.0.2")
    for taken in addresses:
        table = PortTable([HostPort("TCP", taken, 80), HostPort("UDP", "0.0.0.0", 81)])
        for wanted in addresses:
            assert table.clashes_with(HostPort("TCP", wanted, 80)) == ("0.0.0.0" in (taken, wanted) or taken == wanted)
            assert not table.clashes_with(HostPort("UDP", wanted, 80))
            assert not table.clashes_with(HostPort("TCP", wanted, 81))


def test_ports_of_a_pod_that_leaves_are_freed_once() -> None:
    """Another pod can have the same one, if the pod names its node."""
    first, second = HostPort("TCP", "0.0.0.0", 1), HostPort("TCP", "0.0.0.0", 2)
    both = PodResources({}, {}, frozenset((first, second)))
    load = EMPTY.plus(both).plus(PodResources({}, {}, frozenset((first,))))
    assert load.minus(both).ports == (first,)
