"""Why these devices: what was passed over, and why."""

from __future__ import annotations

from dataclasses import replace

from dralloc.answers.explanation.choice import ExplainedChoice
from dralloc.answers.explanation.report import explain
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.testing import builders as build
from dralloc.testing.builders import alternative, claim, device, first_available, match, request, resource_slice
from tests.support.questions import question_of


def choice(
    slices: list[ResourceSlice], *claims: ResourceClaim, allocated: tuple[ResourceClaim, ...] = ()
) -> ExplainedChoice:
    node = build.node()
    question = question_of(
        claims=claims,
        classes={"gpu": build.device_class()},
        slices=slices,
        allocated=allocated,
        nodes=(node,),
    )
    found = explain(question).choice
    assert found is not None
    return found


def passed_over(found: ExplainedChoice, position: int = 0) -> dict[str, str]:
    chosen = found.devices[position]
    return {passed.example.device: passed.why for passed in chosen.passed_over}


def test_what_comes_before_the_chosen_device_and_does_not_do() -> None:
    devices = [
        device("in-use", capacity={"memory": "8Gi"}),
        device("tainted", capacity={"memory": "8Gi"}, taints=[build.taint("broken")]),
        device("small", capacity={"memory": "1Gi"}),
        device("good", capacity={"memory": "8Gi"}),
        device("later", capacity={"memory": "8Gi"}),
    ]
    other = claim("other", allocation=build.allocation(build.held("in-use")))
    found = choice(
        [resource_slice("s", *devices)], claim("claim", request(capacity={"memory": "4Gi"})), allocated=(other,)
    )
    assert found.devices[0].device_id.device == "good"
    assert passed_over(found) == {
        "in-use": "in use",
        "tainted": "untolerated taint broken:NoSchedule",
        "small": "insufficient memory: requested 4Gi, the largest device has 1Gi (gpu.example.com/pool-a/small)",
    }


def test_what_earlier_requests_took() -> None:
    found = choice([resource_slice("s", device("a"), device("b"))], claim("claim", request("one"), request("two")))
    assert [chosen.device_id.device for chosen in found.devices] == ["a", "b"]
    assert passed_over(found, 0) == {}
    assert passed_over(found, 1) == {"a": "taken by request one"}


def test_shares_that_leave_too_little() -> None:
    shared = [device(name, capacity={"memory": "10Gi"}, shareable=True) for name in ("a", "b")]
    asks = [request(name, capacity={"memory": "6Gi"}) for name in ("one", "two")]
    found = choice([resource_slice("s", *shared)], claim("claim", *asks))
    assert passed_over(found, 1) == {"a": "earlier requests left too little of it"}


def test_a_device_that_would_leave_nothing_for_the_rest() -> None:
    devices = [device("any", attributes={"model": "x"}), device("other", attributes={"model": "y"})]
    asks = [request("one"), request("two", where='device.attributes["gpu.example.com"].model == "x"')]
    found = choice([resource_slice("s", *devices)], claim("claim", *asks))
    assert passed_over(found, 0) == {"any": "later requests would not fit"}


def test_devices_that_break_a_constraint() -> None:
    devices = [device(name, attributes={"numa": numa}) for name, numa in (("a", 0), ("b", 1), ("c", 0))]
    found = choice(
        [resource_slice("s", *devices)],
        claim("claim", request("one"), request("two"), constraints=[match("gpu.example.com/numa")]),
    )
    assert passed_over(found, 1) == {
        "a": "taken by request one",
        "b": "its gpu.example.com/numa differs from that of devices taken before",
    }


def test_counters_that_earlier_requests_drew_from() -> None:
    slices = [
        resource_slice("counters", of=2, counters={"x": {"units": "1"}, "y": {"units": "1"}}),
        resource_slice(
            "devices",
            device("x-0", draws={"x": {"units": "1"}}),
            device("x-1", draws={"x": {"units": "1"}}),
            device("y-0", draws={"y": {"units": "1"}}),
            of=2,
        ),
    ]
    found = choice(slices, claim("claim", request("one"), request("two")))
    assert passed_over(found, 1) == {
        "x-0": "taken by request one",
        "x-1": "earlier requests left too little of the pool's counters",
    }


def test_alternatives_that_come_first() -> None:
    found = choice(
        [resource_slice("s", device("a"))],
        claim(
            "claim",
            first_available("gpu", alternative("two", count=2), alternative("one"), alternative("unasked")),
        ),
    )
    assert [(str(refused.request), refused.why) for refused in found.refused] == [("gpu/two", "1 device, 2 requested")]


def test_an_alternative_that_an_earlier_request_prefers_too() -> None:
    big = 'device.attributes["gpu.example.com"].size == "big"'
    asks = [first_available(name, alternative("big", where=big), alternative("any")) for name in ("one", "two")]
    devices = [device("a", attributes={"size": "big"}), device("b", attributes={"size": "small"})]
    found = choice([resource_slice("s", *devices)], claim("claim", *asks))
    assert [(str(refused.request), refused.why) for refused in found.refused] == [
        ("two/big", "fits only if an earlier request takes a less preferred alternative")
    ]


def test_of_several_nodes_the_one_with_the_preferred_alternative() -> None:
    slices = [
        resource_slice("a", device("gpu-0"), pool="a", node_name="a"),
        resource_slice("b", device("gpu-0"), device("gpu-1"), pool="b", node_name="b"),
    ]
    nodes = (build.node("a"), build.node("b"))
    question = question_of(
        claims=(claim("claim", first_available("gpu", alternative("two", count=2), alternative("one"))),),
        classes={"gpu": build.device_class()},
        slices=slices,
        nodes=nodes,
    )
    found = explain(question)
    assert found.available == ("a", "b")
    assert found.choice is not None
    assert (found.choice.node, found.choice.score) == ("b", 8)
    only_a = explain(replace(question, nodes=nodes[:1], chosen="a")).choice
    assert only_a is not None
    assert only_a.score == 7
