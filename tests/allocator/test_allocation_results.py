"""What an allocation has besides its devices: configuration, node selector, shares, binding conditions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import pytest
from msgspec import Raw, structs

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated, Fatal
from dralloc.devices.allocator.stamp import stamp
from dralloc.kube.device_parts import capacity
from dralloc.kube.meta_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dralloc.kube.resource_v1 import (
    AllocationResult,
    DeviceClaimConfiguration,
    DeviceClassConfiguration,
    DeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.testing.builders import (
    alternative,
    claim,
    device,
    device_class,
    first_available,
    node,
    node_selector,
    request,
    resource_slice,
    toleration,
)
from tests.support.allocations import allocate_world
from tests.support.plain_pools import World


def opaque(name: str) -> OpaqueDeviceConfiguration:
    return OpaqueDeviceConfiguration(driver="gpu.example.com", parameters=Raw(f'{{"name":"{name}"}}'.encode()))


def from_class(name: str) -> DeviceClassConfiguration:
    return DeviceClassConfiguration(opaque=opaque(name))


def for_requests(name: str, *requests: str) -> DeviceClaimConfiguration:
    return DeviceClaimConfiguration(requests=requests, opaque=opaque(name))


CLASSES = {
    "a": device_class("a", config=[from_class("class-a")]),
    "b": device_class("b", config=[from_class("class-b")]),
    "plain": device_class("plain"),
}
GPUS = resource_slice("gpus", *(device(f"gpu-{number}") for number in range(4)))


def allocated(*slices: ResourceSlice, claim: ResourceClaim, features: Features | None = None) -> AllocationResult:
    world = World(
        slices=slices, claims=(claim,), classes=CLASSES, node=node("node-a", zone="z1"), features=features or Features()
    )
    outcome = allocate_world(world)
    assert isinstance(outcome, Allocated), outcome
    numbers = count(1)
    return stamp(outcome.claims[0], lambda: f"share-{next(numbers)}")


# --- Configuration ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """`want`: source, name and requests of each entry."""

    id: str
    requests: tuple[DeviceRequest, ...]
    want: list[tuple[str, str, tuple[str, ...]]]
    config: tuple[DeviceClaimConfiguration, ...] = ()


def of(name: str, kind: str) -> DeviceRequest:
    return request(name, device_class=kind)


LIST = first_available("r", alternative("s1", device_class="a"), alternative("s2", device_class="b"))
CASES = [
    Case("none", (of("r", "plain"),), []),
    Case("the class's, for the only request", (of("r", "a"),), [("FromClass", "class-a", ())]),
    Case(
        "classes once each, in the order of their first use; the claim's own last",
        (of("r1", "a"), of("r2", "a"), of("r3", "b")),
        [("FromClass", "class-a", ("r1", "r2")), ("FromClass", "class-b", ("r3",)), ("FromClaim", "own", ())],
        (for_requests("own", "r1", "r2", "r3"),),
    ),
    Case(
        "the claim's, for everything",
        (of("r1", "plain"), of("r2", "plain")),
        [("FromClaim", "own", ())],
        (for_requests("own"),),
    ),
    Case(
        "the claim's, for a request that there is not",
        (of("r", "plain"),),
        [],
        (for_requests("own", "other"),),
    ),
    Case(
        "of alternatives, those of the chosen one",
        (LIST, of("q", "plain")),
        [("FromClass", "class-a", ("r/s1",)), ("FromClaim", "one", ("r/s1",)), ("FromClaim", "main", ("r",))],
        (for_requests("one", "r/s1"), for_requests("two", "r/s2"), for_requests("main", "r")),
    ),
    Case(
        "an entry for the chosen alternative of the only request is for all",
        (LIST,),
        [("FromClass", "class-a", ()), ("FromClaim", "one", ())],
        (for_requests("one", "r/s1", "r/s2"),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_configuration(case: Case) -> None:
    result = allocated(GPUS, claim=claim("c", *case.requests, config=case.config))
    got = [
        (found.source, bytes(found.opaque.parameters)[9:-2].decode(), found.requests)
        for found in result.devices.config
        if found.opaque is not None
    ]
    assert got == case.want


# --- Nodes --------------------------------------------------------------------------------------------------------

HERE = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(
            match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("node-a",)),)
        ),
    )
)
TWO = claim("c", request("r", device_class="plain", count=2))


def test_a_device_of_a_node_ties_the_claim_to_the_node() -> None:
    assert allocated(GPUS, claim=TWO).node_selector == HERE


def test_devices_for_all_nodes_tie_the_claim_to_no_node() -> None:
    assert allocated(resource_slice("s", device("x"), device("y"), all_nodes=True), claim=TWO).node_selector is None


def test_node_selectors_are_merged_without_duplicates() -> None:
    zone = resource_slice("s", device("x"), node_selector=node_selector(zone="z1"), pool="p")
    again = resource_slice("t", device("y"), node_selector=node_selector(zone="z1"), pool="q")
    assert allocated(zone, again, claim=TWO).node_selector == node_selector(zone="z1")


def test_a_device_may_tie_the_claim_to_the_node_if_its_slice_does_not() -> None:
    slices = resource_slice("s", device("x"), device("y", binds_to_node=True), all_nodes=True)
    assert allocated(slices, claim=TWO).node_selector == HERE


def test_devices_with_node_selectors_of_their_own() -> None:
    slices = resource_slice(
        "s",
        device("w", node_name="node-b"),
        device("x", all_nodes=True),
        device("y", node_selector=node_selector(zone="z1")),
        per_device=True,
    )
    result = allocated(slices, claim=TWO)
    assert [found.device for found in result.devices.results] == ["x", "y"]
    assert result.node_selector == node_selector(zone="z1")


def test_a_node_selector_with_several_terms_is_fatal() -> None:
    several = NodeSelector(node_selector_terms=(node_selector(zone="z1").node_selector_terms or ()) * 2)
    slices = resource_slice("s", device("x"), device("y"), node_selector=several)
    world = World(slices=(slices,), claims=(TWO,), classes=CLASSES, node=node("node-a", zone="z1"))
    outcome = allocate_world(world)
    assert isinstance(outcome, Fatal)
    assert str(outcome.device) == "gpu.example.com/pool-a/x"


# --- Devices ------------------------------------------------------------------------------------------------------


def test_a_share_has_the_consumed_amount_of_every_capacity() -> None:
    shared = device("gpu", capacity={"memory": "4Gi", "slots": capacity("8", default="0")}, shareable=True)
    two = claim("c", *(request(f"r{number}", device_class="plain", capacity={"memory": "1Gi"}) for number in range(2)))
    results = allocated(resource_slice("s", shared), claim=two).devices.results
    assert [found.share_id for found in results] == ["share-1", "share-2"]
    assert {name: str(amount) for name, amount in results[0].consumed_capacity.items()} == {
        "memory": "1Gi",
        "slots": "0",
    }


def test_a_dedicated_device_has_neither_share_id_nor_consumed_capacity() -> None:
    (result,) = allocated(
        resource_slice("s", device("gpu", capacity={"memory": "4Gi"})),
        claim=claim("c", request("r", device_class="plain")),
    ).devices.results
    assert (result.share_id, result.consumed_capacity) == (None, {})


def test_results_have_tolerations_and_admin_access() -> None:
    asked = request("r", device_class="plain", tolerations=[toleration("k")], admin=True)
    (result,) = allocated(GPUS, claim=claim("c", asked)).devices.results
    assert (result.tolerations, result.admin_access) == ((toleration("k"),), True)
    (without,) = allocated(GPUS, claim=claim("c", request("r", device_class="plain", admin=False))).devices.results
    assert without.admin_access is None


def test_results_have_binding_conditions_if_the_feature_is_on() -> None:
    slices = resource_slice("s", device("gpu", binding_conditions=["ready"]))
    (result,) = allocated(slices, claim=claim("c", request("r", device_class="plain"))).devices.results
    assert (result.binding_conditions, result.binding_failure_conditions) == (("ready",), ("failed",))


def test_results_have_skipped_node_operations_if_the_node_supports_them() -> None:
    whole = resource_slice("s", device("gpu"))
    skipping = structs.replace(whole, spec=structs.replace(whole.spec, skip_node_operations=("NodePrepareResources",)))
    world = World(
        slices=(skipping,),
        claims=(claim("c", request("r", device_class="plain")),),
        classes=CLASSES,
        node=replace(node(), declared_features=frozenset({"DRAOptionalNodeOperations"})),
        features=Features(optional_node_operations=True),
    )
    outcome = allocate_world(world)
    assert isinstance(outcome, Allocated)
    assert outcome.claims[0].devices[0].skip_node_operations == ("NodePrepareResources",)
    assert not isinstance(allocate_world(replace(world, node=node())), Allocated)
    unheeded = allocate_world(replace(world, features=Features()))
    assert isinstance(unheeded, Allocated)
    assert unheeded.claims[0].devices[0].skip_node_operations == ()
