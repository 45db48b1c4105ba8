"""Cached verdicts never change a decision: a cycle with caches decides like a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from dralloc.devices.identity import ClaimId
from dralloc.devices.node_selectors import NAME_FIELD
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, DeviceRequest, ResourceClaim, ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import CommittedPlacement, Decision, Placement
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.search_effort import SearchEffort
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing.builders import (
    allocation,
    alternative,
    claim,
    device,
    device_class,
    first_available,
    held,
    node_selector,
    request,
    resource_slice,
    taint,
    taint_rule,
)
from tests.support.scheduled_cluster import node, our_pod
from tests.support.workloads import Document, seen

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES = [f"node-{number}" for number in range(5)]
BROKEN = taint_rule("broken", taint("broken"), pool="node-0")
SHARE = request(device_class="share", capacity={"memory": "3"})

REQUESTS: dict[str, DeviceRequest] = {
    "one": request(),
    "two": request(count=2),
    "share": SHARE,
    "fabric": request(device_class="fabric"),
    "part": request(device_class="part"),
    "parts": request(device_class="part", count=2),
    "first": first_available("any", alternative("two", count=2), alternative("one")),
    "either": first_available("any", alternative("far", device_class="fabric"), alternative("near")),
}


def read_node(document: Document) -> Node:
    return decode(encode(document), Node)


class Decisions(RuleBasedStateMachine):
    """A changing cluster, a cycle that has seen every change, and a new cycle for each decision."""

    effort = SearchEffort()

    @initialize()
    def begin(self) -> None:
        self.cluster = ClusterState(rank=lambda name: hash_of(name))
        self.cycle = self.new_cycle()
        self.nodes: dict[str, Node] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.placed: dict[str, tuple[Pod, CommittedPlacement]] = {}
        self.classes: list[DeviceClass] = []
        self.rule_is_there = False
        self.number = 0
        driver = 'device.driver == "gpu.example.com"'
        self.add_class("gpu", driver, "device.allowMultipleAllocations == false")
        self.add_class("share", driver, "device.allowMultipleAllocations == true")
        self.add_class("part", 'device.driver == "part.example.com"')
        self.add_class("fabric", 'device.driver == "fabric.example.com"')
        for name, zone in zip(NODES, ("east", "west", "east", "west", "east"), strict=True):
            self.set_node(name, "4", zone, is_tainted=False, is_off=False)
            self.publish(name, whole=2, shared=1)
        self.publish_fabric("east", 1)

    def add_class(self, name: str, *where: str) -> None:
        self.classes.append(device_class(name, where=where))
        self.cluster.class_changed(None, self.classes[-1])

    def new_cycle(self, effort: SearchEffort | None = None) -> Cycle:
        return Cycle(self.cluster, FeatureGates.defaults(), effort or self.effort)

    # --- The cluster changes ----------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NODES),
        cpu=st.sampled_from(["1", "4"]),
        zone=st.sampled_from(["east", "west"]),
        is_tainted=st.booleans(),
        is_off=st.booleans(),
    )
    def set_node(self, name: str, cpu: str, zone: str, is_tainted: bool, is_off: bool) -> None:
        taints = ({"key": "slow", "effect": "PreferNoSchedule"},) if is_tainted else ()
        after = read_node(
            node(name, cpu=cpu, labels={"zone": zone}, taints=taints, unschedulable=is_off and cpu == "1")
        )
        self.cluster.node_changed(self.nodes.get(name), after)
        self.nodes[name] = after

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        self.cluster.node_changed(self.nodes.pop(name), None)

    @rule(name=st.sampled_from(NODES), whole=st.integers(0, 3), shared=st.integers(0, 2))
    def publish(self, name: str, whole: int, shared: int) -> None:
        devices = [device(f"gpu-{number}") for number in range(whole)]
        devices += [device(f"share-{number}", shareable=True, capacity={"memory": "8"}) for number in range(shared)]
        self.set_slice(resource_slice(name, *devices, pool=name, node_name=name))

    @rule(zone=st.sampled_from(["east", "west"]), count=st.integers(0, 3))
    def publish_fabric(self, zone: str, count: int) -> None:
        devices = [device(f"port-{number}") for number in range(count)]
        selector = node_selector(zone=zone)
        self.set_slice(
            resource_slice(f"fabric-{zone}", *devices, driver="fabric.example.com", pool=zone, node_selector=selector)
        )

    def set_slice(self, published: ResourceSlice) -> None:
        name = published.metadata.name
        self.cluster.slice_changed(self.slices.get(name), published)
        self.slices[name] = published

    @precondition(lambda self: self.slices)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.slices)))
        self.cluster.slice_changed(self.slices.pop(name), None)

    @rule()
    def taint_or_not(self) -> None:
        self.cluster.rule_changed(*((BROKEN, None) if self.rule_is_there else (None, BROKEN)))
        self.rule_is_there = not self.rule_is_there

    # --- Pods come and go -------------------------------------------------------------------------------------------

    @rule(shape=st.sampled_from(sorted(REQUESTS)), zone=st.sampled_from(["", "", "", "east"]), count=st.integers(1, 4))
    def place(self, shape: str, zone: str, count: int) -> None:
        for _ in range(count):
            self.place_one(shape, zone)

    def place_one(self, shape: str, zone: str) -> None:
        self.number += 1
        name = f"p{self.number}"
        document = our_pod(name, name, requests={"cpu": "500m"})
        document["spec"]["nodeSelector"] = {"zone": zone} if zone else {}
        pod = seen(document)
        self.claims[name] = claim(name, REQUESTS[shape])
        self.cluster.claim_changed(None, self.claims[name])
        decision = self.cycle.decide(pod, NOW)
        assert summary(decision) == summary(self.new_cycle(SearchEffort()).decide(pod, NOW))
        if isinstance(decision, Placement):
            placement = decision.commit(lambda: "share")
            self.cluster.assume(pod, placement.node, placement.allocations)
            self.placed[name] = (pod, placement)

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def share_a_claim(self, data: st.DataObject) -> None:
        """Places another pod with the claim of a placed pod: it must go where the devices are."""
        name = data.draw(st.sampled_from(sorted(self.placed)))
        self.number += 1
        pod = seen(our_pod(f"p{self.number}", name))
        decision = self.cycle.decide(pod, NOW)
        assert summary(decision) == summary(self.new_cycle(SearchEffort()).decide(pod, NOW))

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.placed)))
        pod, place = self.placed.pop(name)
        self.cluster.forget(pod, place.allocations)

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        """The watch delivers the decision."""
        name = data.draw(st.sampled_from(sorted(self.placed)))
        known = self.cluster.find_claim(ClaimId("default", name))
        assert known is not None
        self.number += 1
        stored = replace(known, metadata=replace(known.metadata, resource_version=str(self.number)))
        self.cluster.claim_changed(self.claims[name], stored)
        self.claims[name] = stored

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """The pod and its claim are deleted."""
        name = data.draw(st.sampled_from(sorted(self.placed)))
        pod, _ = self.placed.pop(name)
        self.cluster.pod_changed(pod, None)
        self.cluster.claim_changed(self.claims.pop(name), None)


def hash_of(name: str) -> int:
    return int(name.removeprefix("node-")) * 7 % 5


def summary(decision: Decision) -> Any:
    return decision.commit(lambda: "share") if isinstance(decision, Placement) else decision


class LazyDecisions(Decisions):
    """Every pool counts as seen by many nodes, so verdicts are checked when they are used."""

    effort = SearchEffort(few_max=0)


class PartitionDecisions(Decisions):
    """Cards are published as partitions, in two slices, with other generations, amounts and names, and in any order. Decisions and their
    reasons are those of a scheduler that is started with what is there now.
    """

    @rule(
        name=st.sampled_from(NODES[:2]),
        generation=st.integers(1, 2),
        slots=st.sampled_from([0, 4, 8]),
        whole=st.booleans(),
        halves=st.integers(0, 3),
        counters_first=st.booleans(),
    )
    def publish_partitions(
        self, name: str, generation: int, slots: int, whole: bool, halves: int, counters_first: bool
    ) -> None:
        """Without slots, the server has dropped the counters."""
        sizes = {"whole": 8} if whole else {}
        sizes |= {f"half-{number}": 4 for number in range(halves)}
        draws = {part: {"card": {"slots": str(size)}} if slots else None for part, size in sizes.items()}
        parts = [device(part, draws=drawn) for part, drawn in draws.items()]
        counters = {"card": {"slots": str(slots)}} if slots else None
        terms: Any = {
            "driver": "part.example.com",
            "pool": f"card-{name}",
            "generation": generation,
            "of": 2,
            "node_name": name,
        }
        published = [
            resource_slice(f"{name}-counters", counters=counters, **terms),
            resource_slice(f"{name}-parts", *parts, **terms),
        ]
        for each in published if counters_first else reversed(published):
            self.set_slice(each)
            self.place_one("part", "")

    def place_one(self, shape: str, zone: str) -> None:
        super().place_one(shape, zone)
        pod = seen(our_pod("next", "next"))
        for shape in ("part", "parts"):
            asked = claim("next", REQUESTS[shape])
            started = self.started_again()
            for cluster in (self.cluster, started):
                cluster.claim_changed(None, asked)
            decision = self.cycle.decide(pod, NOW)
            assert summary(decision) == summary(Cycle(started, FeatureGates.defaults()).decide(pod, NOW))
            self.cluster.claim_changed(asked, None)

    def started_again(self) -> ClusterState:
        cluster = ClusterState(rank=lambda name: hash_of(name))
        for added in self.classes:
            cluster.class_changed(None, added)
        for found in self.nodes.values():
            cluster.node_changed(None, found)
        for published in self.slices.values():
            cluster.slice_changed(None, published)
        for asked in self.claims.values():
            cluster.claim_changed(None, asked)
        if self.rule_is_there:
            cluster.rule_changed(None, BROKEN)
        for pod, placement in self.placed.values():
            cluster.assume(pod, placement.node, placement.allocations)
        return cluster


STEPS = settings(stateful_step_count=25)
TestDecisions = pytest.mark.slow(Decisions.TestCase)
TestDecisions.settings = STEPS
TestLazyDecisions = pytest.mark.slow(LazyDecisions.TestCase)
TestLazyDecisions.settings = STEPS
TestPartitionDecisions = pytest.mark.slow(PartitionDecisions.TestCase)
TestPartitionDecisions.settings = settings(stateful_step_count=10)


@pytest.mark.parametrize("few", [0, 64], ids=["many nodes", "few nodes"])
def test_a_freed_port_helps_every_node_that_can_use_it(few: int) -> None:
    machine = with_the_port_taken(few)
    machine.place_one("fabric", "")
    [(pod, place)] = machine.placed.values()
    # The node that had the port cannot take the next pod.
    machine.set_node(place.node, "1", "east", is_tainted=False, is_off=True)
    machine.cluster.pod_changed(pod, None)
    machine.cluster.claim_changed(machine.claims["p1"], None)
    machine.place_one("fabric", "")
    assert machine.placed["p3"][1].node in {"node-0", "node-2", "node-4"} - {place.node}


@pytest.mark.parametrize("few", [0, 64], ids=["many nodes", "few nodes"])
def test_a_freed_port_is_allocated_to_a_pod_that_prefers_it(few: int) -> None:
    machine = with_the_port_taken(few)
    machine.place_one("either", "")
    assert used_by(machine, "p2") == ["any/near"]
    # Only the claim is deleted, so that no node changes except for the port.
    machine.cluster.claim_changed(machine.claims.pop("p1"), None)
    machine.place_one("either", "")
    machine.place_one("either", "")
    assert [used_by(machine, name) for name in ("p3", "p4")] == [["any/far"], ["any/near"]]


def with_the_port_taken(few: int) -> Decisions:
    """Decisions after pod p1 took the port."""
    machine = Decisions()
    machine.begin()
    machine.cycle = machine.new_cycle(SearchEffort(few_max=few))
    machine.place_one("fabric", "")
    return machine


def used_by(machine: Decisions, name: str) -> list[str]:
    """The alternatives that the pod's claim was allocated."""
    _, place = machine.placed[name]
    return [result.request for given in place.allocations.values() for result in given.devices.results]


# --- Messages name the pod's own claims -------------------------------------------------------------------------


@dataclass(frozen=True)
class MessageCase:
    id: str
    requests: tuple[DeviceRequest, ...]
    want: str


MESSAGESS = [
    MessageCase(
        "each fits alone", (request(count=2), request()), "claims team/b0 and team/b1 fit separately, but not together"
    ),
    MessageCase("one of them does not fit", (request(), request(count=9)), "claim team/b1: 2 devices, 9 requested"),
    MessageCase(
        "one of them is at fault",
        (request(), request(where='device.attributes["gpu.example.com"].x > 1')),
        "claim team/b1, request request, device ",
    ),
]


@pytest.mark.parametrize("case", MESSAGESS, ids=lambda case: case.id)
def test_messages_name_the_pods_own_claims(case: MessageCase) -> None:
    """Not those of an equivalent pod before it, which may be in a namespace that the user cannot see."""
    cluster = ClusterState()
    cluster.class_changed(None, device_class())
    cluster.node_changed(None, read_node(node("node-0")))
    devices = [device(f"gpu-{number}") for number in range(2)]
    cluster.slice_changed(None, resource_slice("node-0", *devices, pool="node-0", node_name="node-0"))
    cycle = Cycle(cluster, FeatureGates.defaults())

    def told(prefix: str, namespace: str) -> str:
        names = [f"{prefix}{number}" for number in range(len(case.requests))]
        for name, asked in zip(names, case.requests, strict=True):
            cluster.claim_changed(None, claim(name, asked, namespace=namespace))
        decision = cycle.decide(seen(our_pod(prefix, *names, namespace=namespace)), NOW)
        assert not isinstance(decision, Placement)
        return decision.message

    first, second = told("a", "secret"), told("b", "team")
    assert case.want in second
    assert first.replace("secret/a", "team/b") == second


@dataclass(frozen=True)
class ReachCase:
    id: str
    # The nodes that can use each claim's devices; empty if all can.
    claims: Mapping[str, str]
    want: str


REACHES = [
    ReachCase(
        "one claim holds the pod to its node",
        {"all": "", "here": "node-0"},
        "1 node: claim default/here is allocated on node node-0",
    ),
    ReachCase(
        "two claims draw it to two nodes",
        {"here": "node-0", "there": "node-1"},
        "1 node: claim default/here is allocated on node node-0, which this node cannot use; 1 node: claim default/there is",
    ),
]


@pytest.mark.parametrize("case", REACHES, ids=lambda case: case.id)
def test_the_message_names_the_claim_that_the_node_cannot_use(case: ReachCase) -> None:
    cluster = ClusterState()
    for name in ("node-0", "node-1"):
        cluster.node_changed(None, read_node(node(name)))
    for name, reached_from in case.claims.items():
        named = NodeSelectorRequirement(key=NAME_FIELD, operator="In", values=(reached_from,))
        selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(named,)),))
        given = replace(allocation(held(name)), node_selector=selector if reached_from else None)
        cluster.claim_changed(None, claim(name, request(), allocation=given))
    cycle = Cycle(cluster, FeatureGates.defaults())
    decision = cycle.decide(seen(our_pod("p", *case.claims, requests={"cpu": "100"})), NOW)
    assert not isinstance(decision, Placement)
    assert case.want in decision.message
