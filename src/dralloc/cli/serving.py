"""Orders served one after the other, each from what the ones before it left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

from msgspec.structs import replace

from dralloc.allocator.diagnosis.diagnoser import Diagnoser, reason_of_error
from dralloc.allocator.diagnosis.reasons import Reason, availability, grouped
from dralloc.allocator.outcome import Fatal
from dralloc.allocator.placing import Placed, Refuted, Unplaced, place
from dralloc.allocator.requests import Demand, compile_demand
from dralloc.allocator.stamp import stamp
from dralloc.api.pod_claims import pod_reference
from dralloc.api.resource_v1 import AllocationResult, ResourceClaim
from dralloc.cli.orders import Order
from dralloc.cli.world import World
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.node_selectors import Node
from dralloc.whatif.explanation.node_findings import investigate


@dataclass(frozen=True, slots=True)
class Given:
    """A claim with its devices, and the node where it gets them."""

    claim: ResourceClaim
    node: str

    def rows(self) -> Iterator[tuple[str, ...]]:
        claim_id = str(ClaimId.of(self.claim))
        assert self.claim.status.allocation is not None, "it was given something"
        results = self.claim.status.allocation.devices.results
        for result in results:
            device = str(DeviceId.of(result))
            consumed = ",".join(f"{name}={amount}" for name, amount in result.consumed_capacity.items())
            share = consumed or ("a share" if result.share_id else "")
            yield claim_id, result.request, self.node, device, share or "-", result.share_id or "-"
        if not results:
            yield claim_id, "-", self.node, "-", "-", "-"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`message` completes the sentence that begins with the subject."""

    subject: str
    message: str


class Service:
    def __init__(self, world: World, nodes: tuple[Node, ...]) -> None:
        self.given: list[Given] = []
        self.refusals: list[Refusal] = []
        self._world = world
        self._nodes = nodes
        self._snapshot = world.snapshot
        # For claims that ask for the same: the nodes that do not do. They never will, while devices are only taken.
        self._refuted: dict[bytes, Refuted] = {}
        self._messages: dict[bytes, tuple[Snapshot, str]] = {}

    def serve(self, order: Order) -> None:
        if order.fault:
            self.refusals.append(Refusal(order.subject, f"cannot be served: {order.fault}"))
            return
        self.given.extend(Given(claim, _node_of(claim)) for claim in order.allocated)
        if not order.claims:
            return
        demand = compile_demand(order.claims, self._world.classes, self._world.features)
        nodes = [node for node in self._nodes if node.name not in order.excluded]
        refuted = self._refuted.setdefault(demand.shape, Refuted())
        match place(demand, nodes, self._snapshot, refuted):
            case Placed() as placed:
                self._give(order, placed)
            case Fatal() as fatal:
                claim_ids = tuple(map(ClaimId.of, order.claims))
                self.refusals.append(
                    Refusal(
                        order.subject, f"cannot be allocated: {reason_of_error(demand, fatal).named(claim_ids).line}"
                    )
                )
            case Unplaced():
                why = self._why_not(order, demand)
                self.refusals.append(Refusal(order.subject, f"does not fit: {why}"))

    def _give(self, order: Order, placed: Placed) -> None:
        share_ids = ShareIds(order.subject)
        for claim, allocation in zip(order.claims, placed.allocated.claims, strict=True):
            given = _with_allocation(claim, stamp(allocation, share_ids), order)
            self._snapshot = self._snapshot.with_claim(given)
            self.given.append(Given(given, placed.node.name))

    def _why_not(self, order: Order, demand: Demand) -> str:
        """The reasons of all nodes. Claims that ask for the same are told the same, until something changes."""
        known = self._messages.get(demand.shape)
        if known is not None and known[0] is self._snapshot and not order.excluded:
            return known[1]
        nodes = [node for node in self._nodes if node.name not in order.excluded]
        findings = investigate(Diagnoser(demand, self._snapshot, tuple(map(ClaimId.of, order.claims))), nodes)
        reasons = [(node.name, found) for node, found in findings if isinstance(found, Reason)]
        reasons += [(node.name, order.excluded[node.name]) for node in self._nodes if node.name in order.excluded]
        message = availability(grouped(reasons), total=len(self._nodes))
        if not order.excluded:
            self._messages[demand.shape] = (self._snapshot, message)
        return message


class ShareIds:
    """The same ids for the same claims, so that asking twice gives the same answer."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return str(uuid5(NAMESPACE_URL, f"dralloc/{self._subject}/{self._count}"))


def _with_allocation(claim: ResourceClaim, result: AllocationResult, order: Order) -> ResourceClaim:
    reserved = (pod_reference(order.pod),) if order.pod is not None and order.pod.metadata.uid else ()
    status = replace(claim.status, allocation=result, reserved_for=(*claim.status.reserved_for, *reserved))
    return replace(claim, status=status)


def _node_of(claim: ResourceClaim) -> str:
    """The node that an allocated claim can be used on, where there is only one."""
    allocation = claim.status.allocation
    selector = allocation.node_selector if allocation is not None else None
    terms = (selector.node_selector_terms or ()) if selector is not None else ()
    named = [field.values for term in terms for field in term.match_fields if field.operator == "In"]
    return named[0][0] if len(terms) == 1 and len(named) == 1 and len(named[0]) == 1 else "-"
