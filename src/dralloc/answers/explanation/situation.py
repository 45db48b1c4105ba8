"""Everything that decides what some claims get on one node, before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dralloc.answers.engine import Engine
from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.diagnosis.claim_edits import Claims
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Outcome
from dralloc.devices.allocator.requests import Demand, compile_demand
from dralloc.devices.allocator.solver import DEFAULT_BUDGET, StepBudget
from dralloc.devices.identity import ClaimId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass


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
