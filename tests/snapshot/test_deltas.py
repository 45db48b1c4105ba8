"""A snapshot after deltas equals one that is built from scratch; old snapshots do not change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dralloc.devices.identity import ClaimId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.pools import PoolState, Visibility
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.testing.builders import (
    allocation,
    claim,
    device,
    held,
    node,
    node_selector,
    resource_slice,
    taint,
    taint_rule,
)

VISIBILITIES = (Visibility(True, False), Visibility(False, False))

names = st.sampled_from(("a", "b", "c"))
pools = st.sampled_from(("pool-0", "pool-1"))
devices = st.sampled_from(("gpu-0", "gpu-1", "gpu-2"))
draws = st.sampled_from((None, {"card": {"memory": "2"}}))


@st.composite
def slices(draw: st.DrawFn) -> ResourceSlice:
    placement: dict[str, Any] = draw(
        st.sampled_from(
            (
                {"node_name": "node-a"},
                {"node_name": "node-b"},
                {"all_nodes": True},
                {"node_selector": node_selector(zone="z1")},
            )
        )
    )
    found = draw(st.lists(devices, unique=True, max_size=3))
    has_counters = draw(st.booleans()) and not found
    return resource_slice(
        draw(names),
        *(device(name, draws=draw(draws)) for name in found),
        pool=draw(pools),
        generation=draw(st.integers(1, 2)),
        of=draw(st.integers(1, 3)),
        counters={"card": {"memory": "9"}} if has_counters else None,
        **placement,
    )


@st.composite
def claims(draw: st.DrawFn) -> ResourceClaim:
    shares = st.sampled_from((None, "share-1"))
    results = [
        held(name, pool=draw(pools), share_id=(share := draw(shares)), consumed={"memory": "3"} if share else None)
        for name in draw(st.lists(devices, max_size=3))
    ]
    return claim(draw(names), allocation=allocation(*results) if draw(st.booleans()) else None)


class Deltas(RuleBasedStateMachine):
    """The model keeps the objects; the snapshot is updated by deltas."""

    def __init__(self) -> None:
        super().__init__()
        self.slices: dict[str, ResourceSlice] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.tainting: dict[str, DeviceTaintRule] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.snapshot = Snapshot()
        self.kept = [(self.snapshot, observed(self.snapshot))]

    @rule(changed=slices())
    def slice_changes(self, changed: ResourceSlice) -> None:
        self.slices[str(changed.metadata.name)] = changed
        self.snapshot = self.snapshot.with_slice(changed)

    @rule(name=names)
    def slice_goes(self, name: str) -> None:
        self.slices.pop(name, None)
        self.snapshot = self.snapshot.without_slice(name)

    @rule(changed=claims())
    def claim_changes(self, changed: ResourceClaim) -> None:
        self.claims[str(changed.metadata.name)] = changed
        self.snapshot = self.snapshot.with_claim(changed)

    @rule(name=names)
    def claim_goes(self, name: str) -> None:
        gone = self.claims.pop(name, None)
        if gone is not None:
            self.snapshot = self.snapshot.without_claim(ClaimId.of(gone))

    @rule(name=names, pool=st.none() | pools, found=st.none() | devices)
    def rule_changes(self, name: str, pool: str | None, found: str | None) -> None:
        self.tainting[name] = taint_rule(name, taint("broken"), pool=pool, device=found)
        self.snapshot = self.snapshot.with_rule(self.tainting[name])

    @rule(name=names)
    def rule_goes(self, name: str) -> None:
        self.tainting.pop(name, None)
        self.snapshot = self.snapshot.without_rule(name)

    @rule(zone=st.sampled_from(("z1", "z2")))
    def node_changes(self, zone: str) -> None:
        self.nodes["node-a"] = node("node-a", zone=zone)
        self.snapshot = self.snapshot.with_node(self.nodes["node-a"])

    @rule()
    def node_goes(self) -> None:
        self.nodes.pop("node-a", None)
        self.snapshot = self.snapshot.without_node("node-a")

    @rule()
    def keep(self) -> None:
        self.kept.append((self.snapshot, observed(self.snapshot)))

    @invariant()
    def equals_a_new_one(self) -> None:
        anew = Snapshot.of(
            slices=self.slices.values(),
            claims=self.claims.values(),
            rules=self.tainting.values(),
            nodes=self.nodes.values(),
        )
        assert observed(self.snapshot) == observed(anew)

    def teardown(self) -> None:
        for snapshot, then in self.kept:
            assert observed(snapshot) == then
        for name in "abc":
            self.slice_goes(name)
            self.claim_goes(name)
            self.rule_goes(name)
        self.node_goes()
        left = self.snapshot
        assert [len(part) for part in (left.pools, left.pool_of_slice, left.placements, left.usage, left.claims)] == [
            0
        ] * 5
        assert (len(left.rules.by_name), len(left.rules.by_scope), len(left.nodes)) == (0, 0, 0)


def observed(snapshot: Snapshot) -> dict[str, Any]:
    """The whole content of a snapshot as plain values."""
    seen: dict[str, Any] = {"nodes": dict(snapshot.nodes.items()), "claims": dict(snapshot.claims.items())}
    seen["usage"] = {
        pool_id: (dict(usage.devices.items()), usage.dedicated, usage.shared)
        for pool_id, usage in snapshot.usage.items()
    }
    for seen_from in (node("node-a", zone="z1"), node("node-b", zone="z2")):
        for visibility in VISIBILITIES:
            view = snapshot.view(seen_from, visibility)
            seen[f"{seen_from.name} {visibility}"] = [
                (
                    pool.pool_id,
                    pool.layout.status,
                    pool.layout.slices,
                    pool.layout.elsewhere,
                    dict(pool.layout.counters),
                )
                for pool in view.pools
            ]
            seen[f"{seen_from.name} {visibility} devices"] = [
                (strip.slice.device_id(bit), strip.offset + bit, list(strip.slice.taints_from(snapshot.rules)))
                for strip in view.strips
                for bit in range(len(strip.slice.devices))
            ]
            seen[f"{seen_from.name} {visibility} left"] = [
                pool.slices.counters_left(pool.layout, snapshot.usage[pool.pool_id])
                for pool in view.pools
                if pool.layout.status is PoolState.READY and pool.pool_id in snapshot.usage
            ]
    return seen


TestDeltas = pytest.mark.slow(Deltas.TestCase)
TestDeltas.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_views_of_unchanged_pools_are_cached() -> None:
    snapshot = Snapshot.of(
        slices=[resource_slice("a", device("gpu-0")), resource_slice("b", device("g"), node_name="node-b", pool="b")]
    )
    before = snapshot.view(node(), VISIBILITIES[0])
    elsewhere = snapshot.with_slice(resource_slice("b", device("g2"), node_name="node-b", pool="b"))
    used_elsewhere = elsewhere.with_claim(claim(allocation=allocation(held("g2", pool="b"))))
    assert used_elsewhere.view(node(), VISIBILITIES[0]) is before
    used_here = used_elsewhere.with_claim(claim("here", allocation=allocation(held("gpu-0"))))
    assert used_here.view(node(), VISIBILITIES[0]) is before


def test_an_unchanged_slice_returns_the_same_snapshot() -> None:
    snapshot = Snapshot.of(slices=[resource_slice("a", device("gpu-0"))])
    assert snapshot.with_slice(resource_slice("a", device("gpu-0"))) is snapshot
