"""The cluster state: pods on nodes count with their current size, and claims are those of the newest list."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from dralloc.devices.identity import ClaimId
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.state.cluster_events import DEVICES_FREED, NODE_RESOURCES_FREED
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing.builders import allocation, claim, held, request
from tests.support.scheduled_cluster import node
from tests.support.workloads import Document, pod, seen


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
def test_a_resized_pod_counts_with_its_current_size(case: ResizeCase) -> None:
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


def claim_at(revision: int, *, device: str = "") -> ResourceClaim:
    made = claim("c", request(), allocation=allocation(held(device)) if device else None)
    return replace(made, metadata=replace(made.metadata, uid="u", resource_version=str(revision)))


def test_a_claim_that_only_its_creation_has_shown_is_gone_if_a_later_list_does_not_have_it() -> None:
    cluster = ClusterState()
    cluster.claims.created(claim_at(9, device="gpu-0"))
    assert cluster.claims.listed([], 8) == ()
    assert DEVICES_FREED in cluster.claims.listed([], 500)
    assert cluster.claims.find(ClaimId.of(claim_at(9))) is None


def test_a_response_from_before_a_list_says_nothing_of_the_claims_after_it() -> None:
    cluster = ClusterState()
    cluster.claim_changed(None, claim_at(5))
    cluster.claims.listed([claim_at(5)], 500)
    assert cluster.claims.written(claim_at(9, device="gpu-0")) == ()
    assert cluster.claims.created(replace(claim_at(9), metadata=replace(claim_at(9).metadata, name="d"))) == ()
    assert cluster.claims.written(claim_at(501, device="gpu-0"))
