"""Which nodes a pod fits on, and the reason if it does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from dralloc.kube.pod_v1 import PodSpec
from dralloc.scheduler.decide.node_fit import NodeRequirements, misfit
from tests.scheduler.pod_specs import container, host_port, node_state, spec
from tests.support.scheduled_cluster import node
from tests.support.workloads import Document


def required(*requirements: Document) -> Document:
    terms = [{"matchExpressions": list(requirements)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


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
    FitCase("not the named node", spec(nodeName="node-b"), want="does not match spec.nodeName"),
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
        host_port(80),
        there=(host_port(81), host_port(80, "UDP"), host_port(80, address="10.0.0.2")),
        want="host port 80 is in use",
    ),
    FitCase("a port on another address", host_port(80, address="10.0.0.1"), there=(host_port(80, address="10.0.0.2"),)),
    FitCase(
        "a port that a sidecar wants",
        host_port(80, restartPolicy="Always"),
        there=(host_port(80),),
        want="host port 80 is in use",
    ),
    FitCase("a port that an initial container wants, which ends", host_port(80, image="i"), there=(host_port(80),)),
    FitCase("a port that an initial container had, which has ended", host_port(80), there=(host_port(80, image="i"),)),
    FitCase("a port of another protocol", host_port(80), there=(host_port(80, "UDP"),)),
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
def test_which_nodes_fit(case: FitCase) -> None:
    found = misfit(NodeRequirements.of(case.spec), node_state(node("node-a", **case.node), *case.there))
    assert (found.reason if found is not None else None) == case.want
