"""The cluster state: pods on nodes count with their current size, and claims are those of the newest list."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from dralloc.api.codec import decode, encode
from dralloc.api.core_v1 import Node
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.informer import NOTHING_KNOWN
from dralloc.devices.identity import ClaimId
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


def test_a_pod_whose_binding_a_restored_backup_has_undone_is_on_no_node() -> None:
    cluster = ClusterState()
    cluster.node_changed(None, decode(encode(node("a")), Node))
    unbound, bound = (
        seen(pod("p", {"gpu": {"resourceClaimName": "c"}}, requests={"cpu": "2"}, node=name)) for name in (None, "a")
    )
    cluster.pod_changed(None, unbound)
    cluster.pod_changed(unbound, bound)
    assert cluster.is_in_use(ClaimId.of(claim_at(1)))
    assert NODE_RESOURCES_FREED in cluster.pod_changed(bound, unbound)
    assert not cluster.is_in_use(ClaimId.of(claim_at(1)))
    assert not cluster.nodes["a"].load.amounts.get("cpu")
    # A decision counts until it is taken back: the watch does not show the binding yet.
    cluster.assume(unbound, "a", {})
    assert cluster.pod_changed(unbound, unbound) == ()
    assert cluster.nodes["a"].load.amounts["cpu"] == Quantity.parse("2").nanos


def claim_at(revision: int, *, device: str = "") -> ResourceClaim:
    made = claim("c", request(), allocation=allocation(held(device)) if device else None)
    return replace(made, metadata=replace(made.metadata, uid="u", resource_version=str(revision)))


RESTORED = pytest.mark.parametrize(
    ("revision", "listed_at"), [(500, 500), (NOTHING_KNOWN, 0)], ids=["higher revisions", "lower revisions"]
)


@RESTORED
def test_a_restored_backup_undoes_what_was_known_of_claims(revision: int, listed_at: int) -> None:
    cluster = ClusterState()
    cluster.claim_changed(None, claim_at(5))
    cluster.claims.written(claim_at(9, device="gpu-0"))
    # A list from before the write, as after a broken watch.
    assert cluster.claims.listed([claim_at(5)], 8, listed_at=8) == ()
    assert cluster.snapshot.claims
    assert DEVICES_FREED in cluster.claims.listed([claim_at(5)], revision, listed_at=listed_at)
    known = cluster.claims.find(ClaimId.of(claim_at(5)))
    assert known is not None
    assert known.effective.status.allocation is None


@RESTORED
def test_a_restored_backup_undoes_claims_that_only_their_creation_has_shown(revision: int, listed_at: int) -> None:
    cluster = ClusterState()
    cluster.claims.created(claim_at(9, device="gpu-0"))
    assert cluster.claims.listed([], 8, listed_at=8) == ()
    assert DEVICES_FREED in cluster.claims.listed([], revision, listed_at=listed_at)
    assert cluster.claims.find(ClaimId.of(claim_at(9))) is None


def test_a_response_from_before_a_restore_says_nothing_of_the_claims_after_it() -> None:
    cluster = ClusterState()
    cluster.claim_changed(None, claim_at(5))
    cluster.claims.listed([claim_at(5)], 500, listed_at=500)
    assert cluster.claims.written(claim_at(9, device="gpu-0")) == ()
    assert cluster.claims.created(replace(claim_at(9), metadata=replace(claim_at(9).metadata, name="d"))) == ()
    assert cluster.claims.written(claim_at(501, device="gpu-0"))
