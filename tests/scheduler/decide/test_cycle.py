"""Decisions of the scheduling cycle on values: placements, rejections with what they wait for, failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.scheduler.contract import DecisionFailure, Placement, Rejection
from dralloc.scheduler.state.cluster_events import (
    DEVICES_CHANGED,
    DEVICES_FREED,
    NODE_CHANGED,
    NODE_RESOURCES_FREED,
    ClusterEvent,
    claim_changed,
    class_changed,
    pod_changed,
)
from dralloc.scheduler.state.pod_resources import resources_of
from dralloc.testing.builders import (
    allocation,
    alternative,
    claim,
    device,
    first_available,
    held,
    node_selector,
    request,
)
from tests.scheduler.cluster_values import NOW, ClusterValue, cluster, decide
from tests.support.scheduled_cluster import our_pod
from tests.support.workloads import Document, pod, seen, template

CLAIM = ClaimId("default", "c")
POD_CHANGED = pod_changed(("default", "p"))
ANY_NODE = {NODE_CHANGED, NODE_RESOURCES_FREED, POD_CHANGED}
DEVICES = {*ANY_NODE, DEVICES_FREED, DEVICES_CHANGED, claim_changed(CLAIM), class_changed("gpu")}
GPU = device("gpu-0")
SHARED = device("gpu-0", shareable=True, capacity={"memory": "8Gi"})
WANTED = claim("c", request())
TAKEN = claim("other", allocation=allocation(held("gpu-0", pool="a")))
LISTS_OFF = "DRAPrioritizedList=false"


def on_node(name: str, **more: object) -> ResourceClaim:
    """The claim `c` with a device that only nodes with the label reach."""
    given = replace(allocation(held("gpu-0", pool=name)), node_selector=node_selector(only=name))
    return claim("c", request(), allocation=given, **more)  # type: ignore[arg-type]


def our(*claims: str, **members: object) -> Pod:
    document = our_pod("p", *claims)
    document["spec"].update(members)
    return seen(document)


def from_template(**status: Any) -> Pod:
    document: Document = pod("p", {"mine": template("t")})
    return seen(document, **status)


# --- Placements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlacementCase:
    id: str
    cluster: ClusterValue
    pod: Pod = field(default_factory=lambda: our("c"))
    node: str = "a"
    # The devices of new allocations, with the request that they serve.
    new: tuple[str, ...] = ()
    held: tuple[ClaimId, ...] = ()


PLACEMENTS = [
    PlacementCase("no claims", cluster({"a": ()}), our()),
    PlacementCase("a device", cluster({"a": [GPU]}, [WANTED]), new=("request gpu.example.com/a/gpu-0",)),
    PlacementCase(
        "the node with a free device",
        cluster({"a": [GPU], "b": [GPU]}, [WANTED, TAKEN]),
        node="b",
        new=("request gpu.example.com/b/gpu-0",),
    ),
    PlacementCase(
        "the node with the first alternative",
        cluster(
            {"a": [GPU], "b": [GPU, device("gpu-1")]},
            [claim("c", first_available("r", alternative("two", count=2), alternative("one")))],
        ),
        node="b",
        new=("r/two gpu.example.com/b/gpu-0", "r/two gpu.example.com/b/gpu-1"),
    ),
    PlacementCase(
        "a claim that has devices keeps them",
        cluster({"a": [GPU]}, [claim("c", request(), allocation=allocation(held("gpu-0", pool="a")))]),
        held=(CLAIM,),
    ),
]


@pytest.mark.parametrize("case", PLACEMENTS, ids=lambda case: case.id)
def test_placements(case: PlacementCase) -> None:
    decision = decide(case.cluster, case.pod)
    assert isinstance(decision, Placement), decision
    new = [f"{each.request} {each.device}" for found in decision.new.values() for each in found.devices]
    assert (decision.node, tuple(new), tuple(decision.held)) == (case.node, case.new, case.held)


def test_a_placement_tells_what_the_pod_uses_of_its_node() -> None:
    the_pod = seen(our_pod("p", requests={"cpu": "2"}))
    decision = decide(cluster({"a": ()}), the_pod)
    assert isinstance(decision, Placement)
    assert decision.commit(str).needs == resources_of(the_pod.spec)


def test_shares_get_their_ids_and_the_time_when_a_placement_is_committed() -> None:
    wanted = claim("c", request(count=1, capacity={"memory": "2Gi"}))
    decision = decide(cluster({"a": [SHARED]}, [wanted]), our("c"))
    assert isinstance(decision, Placement)
    committed = decision.commit(lambda: "share-1")
    [result] = committed.allocations[CLAIM].devices.results
    assert (result.share_id, committed.new) == ("share-1", frozenset({CLAIM}))
    assert committed.allocations[CLAIM].allocation_timestamp == NOW.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_no_time_is_recorded_without_binding_conditions() -> None:
    decision = decide(cluster({"a": [GPU]}, [WANTED]), our("c"), "DRADeviceBindingConditions=false")
    assert isinstance(decision, Placement)
    assert decision.commit(str).allocations[CLAIM].allocation_timestamp is None


# --- Rejections -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RejectionCase:
    id: str
    cluster: ClusterValue
    message: str
    waits_for: set[ClusterEvent]
    pod: Pod = field(default_factory=lambda: our("c"))
    gates: str = ""
    is_early: bool = False
    # Whether equivalent pods get the same rejection.
    is_for_group: bool = False
    deallocate: ClaimId | None = None
    plugins: frozenset[str] = frozenset({"DynamicResources"})


REJECTIONS = [
    RejectionCase(
        "a claim that does not exist",
        cluster({"a": ()}),
        "claim default/c does not exist",
        {POD_CHANGED, claim_changed(CLAIM)},
        is_early=True,
    ),
    RejectionCase(
        "a claim that is not created from its template yet",
        cluster({"a": ()}),
        "pod claim mine: ResourceClaim not created yet",
        {POD_CHANGED},
        from_template(),
        is_early=True,
    ),
    RejectionCase(
        "a claim that was not created for the pod",
        cluster({"a": ()}, [WANTED]),
        "claim default/c was not created for this pod",
        {POD_CHANGED, claim_changed(CLAIM)},
        from_template(resourceClaimStatuses=[{"name": "mine", "resourceClaimName": "c"}]),
    ),
    RejectionCase(
        "a device class that does not exist",
        cluster({"a": ()}, [WANTED], classes=()),
        "claim default/c, request request: device class gpu does not exist",
        {claim_changed(CLAIM), class_changed("gpu")},
    ),
    RejectionCase(
        "a prioritized list with the feature off",
        cluster({"a": ()}, [claim("c", first_available("r", alternative("x")))]),
        "claim default/c, request r: has alternatives, but the feature DRAPrioritizedList is off",
        {claim_changed(CLAIM)},
        gates=LISTS_OFF,
    ),
    RejectionCase(
        "no nodes", cluster(claims=[WANTED]), "no nodes are available", DEVICES, is_for_group=True, plugins=frozenset()
    ),
    RejectionCase(
        "no free device",
        cluster({"a": [GPU]}, [WANTED, TAKEN]),
        "0/1 nodes are available: 1 node: the only device is in use",
        DEVICES,
        is_for_group=True,
    ),
    RejectionCase(
        "a node that is too small, for a pod without claims",
        cluster({"a": ()}),
        "0/1 nodes are available: 1 node: insufficient cpu",
        set(ANY_NODE),
        seen(our_pod("p", requests={"cpu": "100"})),
        is_for_group=True,
        plugins=frozenset({"NodeResourcesFit"}),
    ),
    RejectionCase(
        "an idle claim whose devices keep the pod from other nodes is deallocated",
        cluster({"a": (), "b": [GPU]}, [on_node("b")]),
        "0/2 nodes are available: 2 nodes: claim default/c is allocated on devices of nodes with only=b, which this node cannot use",
        {*ANY_NODE, claim_changed(CLAIM)},
        deallocate=CLAIM,
    ),
    RejectionCase(
        "a claim that another pod uses keeps its devices",
        cluster({"a": ()}, [on_node("b")], in_use=["c"]),
        "0/1 nodes are available: 1 node: claim default/c is allocated on devices of nodes with only=b, which this node cannot use",
        {*ANY_NODE, claim_changed(CLAIM)},
        is_for_group=True,
    ),
]


@pytest.mark.parametrize("case", REJECTIONS, ids=lambda case: case.id)
def test_rejections(case: RejectionCase) -> None:
    decision = decide(case.cluster, case.pod, case.gates)
    assert isinstance(decision, Rejection), decision
    assert decision.message == case.message
    assert decision.waits_for == case.waits_for
    assert (decision.is_early, decision.deallocate) == (case.is_early, case.deallocate)
    assert decision.plugins == case.plugins
    assert (decision.equivalence_key is not None) == case.is_for_group


def test_a_claim_that_a_workload_holds_is_never_deallocated() -> None:
    job = ConsumerReference(api_group="batch", resource="jobs", name="j", uid="u")
    wanted = on_node("b")
    for_job = replace(wanted, status=replace(wanted.status, reserved_for=(job,)))
    decision = decide(cluster({"a": (), "b": [GPU]}, [for_job]), our("c"))
    assert isinstance(decision, Rejection)
    assert decision.deallocate is None


# --- Failures ---------------------------------------------------------------------------------------------------------


def test_an_error_on_one_node_fails_the_attempt() -> None:
    broken = claim("c", request(where='device.attributes["gpu.example.com"].model == "x"'))
    decision = decide(cluster({"a": [GPU], "b": []}, [broken]), our("c"))
    assert isinstance(decision, DecisionFailure)
    assert decision.message.startswith("claim default/c, request request, device gpu.example.com/a/gpu-0: ")


# --- Equivalent pods --------------------------------------------------------------------------------------------------


def equivalence_of(wanted: ResourceClaim, **members: object) -> bytes | None:
    decision = decide(cluster({"a": []}, [wanted]), our(wanted.metadata.name, **members))
    assert isinstance(decision, Rejection)
    return decision.equivalence_key


def test_pods_with_the_same_requirements_are_equivalent() -> None:
    assert equivalence_of(claim("c", request())) == equivalence_of(claim("other", request()))
    different = [
        equivalence_of(claim("c", request())),
        equivalence_of(claim("c", request(count=2))),
        equivalence_of(claim("c", request()), nodeSelector={"zone": "east"}),
        equivalence_of(claim("c", request()), tolerations=[{"operator": "Exists"}]),
    ]
    assert len(set(different)) == len(different)
