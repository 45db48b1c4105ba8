"""One attempt to place one pod: the cluster and the pod in, a decision out.

Pure but for what it remembers: the same cluster and pod give the same decision, and nothing is written. So it also answers
what would happen: build a `ClusterState`, ask, and throw it away.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from dralloc.allocator.features import Features
from dralloc.api.pod_claims import is_held_by_workload
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import AllocationResult, ResourceClaim
from dralloc.api.timestamps import print_timestamp
from dralloc.devices.identity import ClaimId
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.claim_checks import (
    PLUGIN,
    Obstacle,
    claims_of,
    classes_of,
    demand_obstacle,
    pod_key,
    reservation_obstacle,
)
from dralloc.scheduler.decide.node_fit import Wishes, misfit
from dralloc.scheduler.decide.pod_requirements import Ask, Held, PodClaims, shape_of
from dralloc.scheduler.decide.unsupported_fields import unsupported
from dralloc.scheduler.decide.verdict_table import DEFAULT_DILIGENCE, Choice, Diligence, Table
from dralloc.scheduler.state.anti_affinity import Repelled
from dralloc.scheduler.state.binding_conditions import is_unusable
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
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.node_state import NodeState

# Bounds on what is remembered: shapes, and verdicts of all shapes together.
SHAPES_MAX: Final = 1000
VERDICTS_MAX: Final = 100_000


class Place(Struct, frozen=True, gc=False):
    """The pod gets the node; its claims get, or have, these devices. Those in `new` are decided here."""

    node: str
    allocations: Mapping[ClaimId, AllocationResult] = field(default_factory=dict)
    new: frozenset[ClaimId] = frozenset()


class Reject(Struct, frozen=True, gc=False):
    """No node can take the pod until one of these things happens.

    `is_early`: what is missing is probably on its way, so there is nothing to tell yet. `deallocate` names a claim that
    nobody uses and whose devices keep the pod from nodes that could take it.
    """

    message: str
    waits_for: frozenset[ClusterEvent]
    is_early: bool = False
    deallocate: ClaimId | None = None
    plugins: frozenset[str] = frozenset({PLUGIN})
    # Pods with the same shape get the same answer; None where the answer is for this pod alone.
    shape: bytes | None = None


class Fail(Struct, frozen=True, gc=False):
    """Something is wrong, and it is not for lack of nodes."""

    message: str


Decision = Place | Reject | Fail


class Cycle:
    """Decides for one pod after the other. `share_ids` gives a new id for each share of a device."""

    def __init__(
        self,
        cluster: ClusterState,
        gates: FeatureGates,
        share_ids: Callable[[], str],
        diligence: Diligence = DEFAULT_DILIGENCE,
    ) -> None:
        self._cluster = cluster
        self._gates = gates
        self._features = dataclasses.replace(Features.of(gates), keeps_shares_whole=True)
        self._share_ids = share_ids
        self._diligence = diligence
        self._tables: OrderedDict[bytes, Table] = OrderedDict()
        self._start = 0

    def decide(self, pod: Pod, now: datetime) -> Decision:
        cluster = self._cluster
        if asked := unsupported(pod.spec):
            message = f"the pod asks for what this scheduler does not support: {', '.join(asked)}"
            return Reject(message, frozenset({pod_changed(pod_key(pod))}))
        claims = claims_of(pod, cluster.find_claim)
        if isinstance(claims, Obstacle):
            return _rejection(claims)
        split = PodClaims.of(claims)
        obstacle = reservation_obstacle(pod, claims, self._gates) or demand_obstacle(
            split.unallocated, cluster.classes, self._gates
        )
        if obstacle is not None:
            return _rejection(obstacle)
        repelled = cluster.repelled(pod)
        shape = shape_of(pod, split, cluster.classes, repelled)
        table = self._table(shape, pod, split, repelled)
        unusable = tuple(claim for claim in split.allocated if is_unusable(claim, now))
        choice = table.best() if not unusable else None
        if choice is not None:
            return self._place(table, choice, split, now)
        refusal = self._refusal(pod, table, split, unusable)
        # A claim in the way is the pod's own affair.
        if isinstance(refusal, Reject) and refusal.deallocate is None and not unusable:
            return replace(refusal, shape=shape)
        return refusal

    def _place(self, table: Table, choice: Choice, claims: PodClaims, now: datetime) -> Place:
        results = table.judge.allocations(choice.fits, choice.node, self._cluster.snapshot)
        moment = print_timestamp(now) if self._features.binding_conditions else None
        new = {
            ClaimId.of(claim): self._finished(result, moment)
            for claim, result in zip(claims.unallocated, results, strict=True)
        }
        old = {ClaimId.of(claim): claim.status.allocation for claim in claims.allocated}
        known = {claim_id: allocation for claim_id, allocation in old.items() if allocation is not None}
        return Place(choice.node.name, known | new, frozenset(new))

    def _finished(self, result: AllocationResult, moment: str | None) -> AllocationResult:
        """With an id of its own for each share, and the time, from which on devices are waited for."""
        devices = result.devices
        results = tuple(
            replace(device, share_id=self._share_ids()) if device.share_id is not None else device
            for device in devices.results
        )
        return replace(result, devices=replace(devices, results=results), allocation_timestamp=moment)

    def _refusal(self, pod: Pod, table: Table, claims: PodClaims, unusable: tuple[ResourceClaim, ...]) -> Reject | Fail:
        if not unusable and table.fault is not None:
            return Fail(claims.named(str(table.fault.fatal)))
        used = frozenset(map(ClaimId.of, (*claims.allocated, *claims.unallocated)))
        waits_for = frozenset(map(claim_changed, used)) | {
            NODE_CHANGED,
            NODE_RESOURCES_FREED,
            pod_changed(pod_key(pod)),
        }
        if claims.unallocated:
            waits_for |= {DEVICES_FREED, DEVICES_CHANGED}
            waits_for |= {class_changed(name) for claim in claims.unallocated for name in classes_of(claim)}
        if unusable:
            message, plugins = f"claim {ClaimId.of(unusable[0])}: its devices could not be bound", frozenset({PLUGIN})
        else:
            message, plugins = table.why_not()
        return Reject(
            claims.named(message),
            waits_for,
            deallocate=self._to_deallocate(pod, table, claims, unusable),
            plugins=plugins,
        )

    def _to_deallocate(
        self, pod: Pod, table: Table, claims: PodClaims, unusable: tuple[ResourceClaim, ...]
    ) -> ClaimId | None:
        """A claim that nobody else uses and that keeps the pod from a node that it could have otherwise."""
        ask = table.ask
        free = [held for claim, held in zip(claims.allocated, ask.held, strict=True) if self._is_free(claim, pod)]
        fixed = [held for held in ask.held if held not in free]
        failed = set(map(ClaimId.of, unusable))
        for held in free:
            away = (node for node in self._cluster.nodes.values() if not held.is_usable_on(node.offer.place))
            if held.claim_id in failed or any(_could_have(ask.wishes, fixed, node) for node in away):
                return held.claim_id
        return None

    def _is_free(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether nobody but the pod holds the claim or runs with it. What a workload holds is never free."""
        is_ours = all(reference.uid == pod.metadata.uid for reference in claim.status.reserved_for)
        return is_ours and not is_held_by_workload(claim) and not self._cluster.is_in_use(ClaimId.of(claim))

    # --- Tables -----------------------------------------------------------------------------------------------------

    def _table(self, shape: bytes, pod: Pod, claims: PodClaims, repelled: tuple[Repelled, ...]) -> Table:
        table = self._tables.get(shape)
        if table is None:
            ask = Ask.of(pod, claims, self._cluster.classes, self._features, repelled)
            table = self._tables[shape] = Table(ask, self._cluster, start=self._start, diligence=self._diligence)
            self._start += 1009
            self._forget_oldest()
        self._tables.move_to_end(shape)
        return table

    def _forget_oldest(self) -> None:
        verdicts = sum(map(len, self._tables.values()))
        while len(self._tables) > 1 and (len(self._tables) > SHAPES_MAX or verdicts > VERDICTS_MAX):
            _, oldest = self._tables.popitem(last=False)
            verdicts -= len(oldest)


def _rejection(obstacle: Obstacle) -> Reject:
    return Reject(obstacle.message, obstacle.waits_for, obstacle.is_early)


def _could_have(wishes: Wishes, fixed: Iterable[Held], node: NodeState) -> bool:
    """Whether neither the pod's wishes nor claims that cannot be moved keep it from the node."""
    return misfit(wishes, node) is None and all(held.is_usable_on(node.offer.place) for held in fixed)
