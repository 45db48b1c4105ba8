"""What is known of a single request without a search is what the search and the diagnosis say."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.diagnosis.reasons import Reason
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated, Impossible
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.allocator.single_request import SingleRequest
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import Device, DeviceRequest, ResourceClaim
from dralloc.testing.builders import (
    allocation,
    claim,
    device,
    device_class,
    held,
    request,
    resource_slice,
    taint,
    taint_rule,
    toleration,
)

NODES = [NodeFacts(f"node-{number}", {}, frozenset()) for number in range(3)]
MODEL = 'device.attributes["gpu.example.com"].model == "big"'


@st.composite
def devices(draw: st.DrawFn) -> list[Device]:
    """The devices of a node: equal ones, or of several kinds."""
    kinds = draw(st.lists(st.sampled_from(["share", "two", "whole", "broken", "counting"]), min_size=1, max_size=4))
    if draw(st.booleans()):
        kinds = ["share"] * len(kinds)
    return [_device(f"gpu-{number}", kind) for number, kind in enumerate(kinds)]


def _device(name: str, kind: str) -> Device:
    model = {"model": "big" if kind in ("share", "two") else "small"}
    match kind:
        case "share":
            return device(name, attributes=model, shareable=True, capacity={"memory": "8"})
        case "two":
            return device(name, attributes=model, shareable=True, capacity={"memory": "8", "cores": "4"})
        case "broken":
            return device(name, attributes=model, capacity={"memory": "8"}, taints=[taint("broken")])
        case "counting":
            return device(name, attributes=model, capacity={"memory": "8"}, draws={"set": {"slots": "1"}})
        case _:
            return device(name, attributes=model, capacity={"memory": "4"})


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    slices, claims = [], []
    for node in NODES:
        offered = draw(devices())
        counters = {"set": {"slots": "2"}} if any(each.consumes_counters for each in offered) else None
        if counters:
            slices.append(
                resource_slice(f"{node.name}-c", pool=node.name, node_name=node.name, of=2, counters=counters)
            )
        of = 2 if counters or draw(st.integers(0, 9)) == 0 else 1
        slices.append(resource_slice(node.name, *offered, pool=node.name, node_name=node.name, of=of))
        claims += [used for each in offered for used in draw(_uses(node.name, each))]
    rules = [taint_rule("rule", taint("ruled"), pool="node-0")] if draw(st.integers(0, 3)) == 0 else []
    return Snapshot.of(slices=slices, claims=claims, rules=rules, nodes=NODES)


@st.composite
def _uses(draw: st.DrawFn, pool: str, used: Device) -> list[ResourceClaim]:
    name = f"{pool}-{used.name}"
    if not used.allow_multiple_allocations:
        is_used = draw(st.booleans())
        return [claim(name, request(), allocation=allocation(held(used.name, pool=pool)))] if is_used else []
    amounts = draw(st.lists(st.integers(1, 5), max_size=2))
    consumed = [{capacity: str(amount) for capacity in used.capacity} for amount in amounts]
    shares = [held(used.name, pool=pool, share_id=f"{number}", consumed=each) for number, each in enumerate(consumed)]
    return [claim(f"{name}-{number}", request(), allocation=allocation(share)) for number, share in enumerate(shares)]


@st.composite
def requests(draw: st.DrawFn) -> DeviceRequest:
    capacity = draw(st.sampled_from([None, {"memory": "2"}, {"memory": "5"}, {"memory": "8"}, {"cores": "3"}]))
    return request(
        count=draw(st.integers(1, 3)),
        where=draw(st.sampled_from([(), (MODEL,)])),
        capacity=capacity,
        tolerations=draw(st.sampled_from([(), (toleration("broken"),), (toleration(),)])),
    )


@given(snapshots(), requests(), st.booleans())
def test_a_count_says_what_a_search_says(snapshot: Snapshot, asked: DeviceRequest, of_scheduler: bool) -> None:
    features = Features().of_scheduler() if of_scheduler else Features()
    demand = compile_demand([claim("claim", asked)], {"gpu": device_class("gpu")}, features)
    single = SingleRequest.of(demand)
    assert single is not None
    diagnoser = Diagnoser(demand, snapshot)
    told: dict[Hashable, Reason] = {}
    for node in NODES:
        outcome = allocate(AllocationProblem(demand, node, snapshot))
        is_served = single.is_served(node, snapshot)
        assert is_served in (None, isinstance(outcome, Allocated))
        if is_served is not False:
            continue
        assert outcome == Impossible()
        key = single.shortage_key(node, snapshot)
        reason = replace(diagnoser.reason(node, outcome), example="", also="")
        assert key is None or told.setdefault(key, reason) == reason


def test_requests_that_depend_on_other_devices_take_a_search() -> None:
    for asked in (request(everything=True), request(admin=True)):
        demand = compile_demand([claim("claim", asked)], {"gpu": device_class("gpu")}, Features())
        assert SingleRequest.of(demand) is None
    two = compile_demand([claim("claim", request("a"), request("b"))], {"gpu": device_class("gpu")}, Features())
    assert SingleRequest.of(two) is None
