"""Everything that decides what some claims get on one node, before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dralloc.allocator.allocate import AllocationProblem, allocate
from dralloc.allocator.diagnosis.claim_edits import Claims
from dralloc.allocator.features import Features
from dralloc.allocator.outcome import Outcome
from dralloc.allocator.requests import Demand, compile_demand
from dralloc.allocator.solver import DEFAULT_BUDGET, StepBudget
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceClass
from dralloc.devices.identity import ClaimId
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.node_selectors import NodeFacts
from dralloc.whatif.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    claims: Claims
    classes: Mapping[str, DeviceClass]
    features: Features
    snapshot: Snapshot
    node: NodeFacts

    @classmethod
    def of(cls, engine: Engine, pod: Pod, node: NodeFacts) -> Situation:
        """The claims of a completed pod that are not allocated, on a node."""
        return cls(
            claims=tuple(claim for claim in engine.claims_of(pod) if claim.status.allocation is None),
            classes=engine.cluster.classes,
            features=engine.features,
            snapshot=engine.cluster.snapshot,
            node=node,
        )

    @property
    def demand(self) -> Demand:
        return compile_demand(self.claims, self.classes, self.features)

    @property
    def claim_ids(self) -> tuple[ClaimId, ...]:
        return tuple(map(ClaimId.of, self.claims))

    def outcome(self, budget: StepBudget = DEFAULT_BUDGET) -> Outcome:
        """The allocator's answer."""
        return allocate(AllocationProblem(self.demand, self.node, self.snapshot, budget))
