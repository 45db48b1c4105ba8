"""Everything that decides what some claims get on one node, before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dralloc.allocator.allocate import AllocationProblem, allocate
from dralloc.allocator.diagnosis.claim_edits import Claims
from dralloc.allocator.features import Features
from dralloc.allocator.outcome import Outcome
from dralloc.allocator.requests import Demand, compile_demand
from dralloc.api.resource_v1 import DeviceClass
from dralloc.devices.identity import ClaimId
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.node_selectors import NodeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    claims: Claims
    classes: Mapping[str, DeviceClass]
    features: Features
    snapshot: Snapshot
    node: NodeFacts

    @property
    def demand(self) -> Demand:
        return compile_demand(self.claims, self.classes, self.features)

    @property
    def claim_ids(self) -> tuple[ClaimId, ...]:
        return tuple(map(ClaimId.of, self.claims))

    def outcome(self) -> Outcome:
        """The allocator's answer."""
        return allocate(AllocationProblem(self.demand, self.node, self.snapshot))
