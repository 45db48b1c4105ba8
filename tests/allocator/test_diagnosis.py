"""Reasons of many nodes in one line: what is told as one, and what is merged."""

from __future__ import annotations

import time

import pytest

from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.diagnosis.reasons import GROUPS_SHOWN_MAX, Reason, ReasonCause, availability, grouped
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.snapshot import Snapshot
from dralloc.primitives.quantity import Quantity
from dralloc.testing import builders as build


def short(most: str, asked: str = "5Gi") -> Reason:
    return Reason(cause=ReasonCause.CAPACITY, subject="bandwidth", asked=asked, most=Quantity.parse(most))


def test_nodes_with_the_same_story_are_told_as_one_with_the_best_of_each() -> None:
    reasons = [(f"node-{at}", short("2Gi" if at == 7 else "1Gi")) for at in range(480)]
    reasons += [(f"other-{at}", Reason(cause=ReasonCause.CLASS_SELECTOR, subject="nic")) for at in range(20)]
    groups = grouped(reasons)
    assert availability(groups, total=500) == (
        "0/500 nodes are available: 480 nodes: insufficient bandwidth: requested 5Gi, available 2Gi; 20 nodes: no device of class nic"
    )
    assert [group.example for group in groups] == ["node-7", "other-0"]


def test_what_is_asked_for_tells_reasons_apart() -> None:
    assert [str(group) for group in grouped([("a", short("1Gi")), ("b", short("1Gi", "6Gi"))])] == [
        "1 node: insufficient bandwidth: requested 5Gi, available 1Gi",
        "1 node: insufficient bandwidth: requested 6Gi, available 1Gi",
    ]


def test_a_request_for_nothing_of_an_over_committed_device_is_short() -> None:
    assert short("-1Gi", asked="0").distance > short("0", asked="0").distance


# From near to far: what has to change counts first, then how many devices lack, then how much of one.
BY_DISTANCE = [
    Reason(cause=ReasonCause.ERROR, subject="the selector fails", wanted=9),
    Reason(cause=ReasonCause.TOGETHER, subject="requests a and b"),
    Reason(cause=ReasonCause.CONSTRAINT, subject="numa", asked="agree", wanted=2),
    short("0", asked="0"),
    short("4Gi"),
    Reason(cause=ReasonCause.CAPACITY, subject="bandwidth", asked="5Gi", takes="8Gi", most=Quantity.parse("6Gi")),
    Reason(cause=ReasonCause.SIZE, subject="bandwidth", asked="5Gi", most=Quantity.parse("1Gi")),
    Reason(cause=ReasonCause.TAINT, subject="broken"),
    Reason(cause=ReasonCause.CAPACITY, subject="memory", asked="5Gi", most=Quantity.ZERO),
    Reason(cause=ReasonCause.IN_USE),
    Reason(cause=ReasonCause.CLAIM_SELECTOR, subject="model"),
    Reason(cause=ReasonCause.CLASS_SELECTOR, subject="gpu", wanted=9, left=7),
    Reason(cause=ReasonCause.IN_USE, wanted=4, left=1),
    Reason(cause=ReasonCause.CLASS_SELECTOR, subject="gpu"),
    Reason(cause=ReasonCause.NODE, subject="unschedulable"),
    Reason(cause=ReasonCause.LIMIT, asked="40", wanted=40),
]


def test_the_nearest_comes_first_whatever_the_number_of_nodes() -> None:
    reasons = [(f"{number}-{at}", reason) for number, reason in enumerate(BY_DISTANCE) for at in range(number + 1)]
    assert [group.reason.key for group in grouped(reasons)] == [reason.key for reason in BY_DISTANCE]


def test_numbers_that_differ_from_node_to_node_are_left_out() -> None:
    def in_use(count: int) -> Reason:
        return Reason(cause=ReasonCause.IN_USE, lost=count, lost_at_all=count)

    assert str(grouped([("a", in_use(8)), ("b", in_use(8))])[0]) == "2 nodes: all 8 devices are in use"
    assert str(grouped([("a", in_use(8)), ("b", in_use(4))])[0]) == "2 nodes: devices are in use"


def test_a_line_stays_a_line_whatever_the_number_of_stories() -> None:
    reasons = [(f"node-{at}", Reason(cause=ReasonCause.NODE, subject=f"story {at}")) for at in range(100)]
    told = availability(grouped(reasons), total=100)
    assert told.count(";") == GROUPS_SHOWN_MAX
    assert told.endswith(f"{100 - GROUPS_SHOWN_MAX} nodes: other reasons")


def test_expressions_are_cut_to_a_readable_length() -> None:
    expression = " && ".join(f'device.attributes["gpu.example.com"].a{at} == {at}' for at in range(20))
    assert len(str(Reason(cause=ReasonCause.CLAIM_SELECTOR, subject=expression))) < 140


@pytest.mark.slow
def test_reasons_of_hundreds_of_nodes_cost_little() -> None:
    """A pool that all nodes share is looked at once, not once a node."""
    devices = [build.device(f"nic-{at}") for at in range(100)]
    slices = [build.resource_slice(f"s{at:02}", *devices, pool=f"p{at}", all_nodes=True) for at in range(50)]
    nodes = [build.node(f"node-{at}") for at in range(300)]
    snapshot = Snapshot.of(slices=slices, nodes=nodes)
    demand = compile_demand(
        [build.claim("claim", build.request(where="device.allowMultipleAllocations"))],
        {"gpu": build.device_class()},
        Features(),
    )
    diagnoser = Diagnoser(demand, snapshot)
    outcome = allocate(AllocationProblem(demand, nodes[0], snapshot))
    start = time.process_time()
    reasons = [(node.name, diagnoser.reason(node, outcome)) for node in nodes]
    assert len(grouped(reasons)) == 1
    # 1.5 million pairs of node and device: one by one they take a minute.
    assert time.process_time() - start < 10
