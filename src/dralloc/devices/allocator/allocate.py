"""`allocate`: a problem in, an outcome out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from dralloc.devices.allocator.consumable_capacity import Charge
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.ledger import Ledger, Pick
from dralloc.devices.allocator.outcome import (
    RESULTS_MAX,
    Allocated,
    BudgetExhausted,
    ClaimAllocation,
    DeviceAllocation,
    Fatal,
    FatalCause,
    Impossible,
    Outcome,
    SearchAborted,
)
from dralloc.devices.allocator.requests import Alternative, ClaimDemand, Demand
from dralloc.devices.allocator.search import SearchStatus
from dralloc.devices.allocator.solver import DEFAULT_BUDGET, Solution, StepBudget, solve
from dralloc.devices.allocator.supply import Supply
from dralloc.devices.node_selectors import NAME_FIELD, NodeFacts
from dralloc.devices.pools import PoolState
from dralloc.devices.snapshot import Snapshot, VisiblePool
from dralloc.kube.meta_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import (
    FROM_CLAIM,
    FROM_CLASS,
    Device,
    DeviceAllocationConfiguration,
)
from dralloc.primitives.quantity import Quantity

__all__ = ["AllocationProblem", "allocate"]

ALTERNATIVES_MAX: Final = 8


class AllocationProblem(Struct, frozen=True, gc=False):
    """The question which devices the claims of a demand get on a node."""

    demand: Demand
    node: NodeFacts
    snapshot: Snapshot
    budget: StepBudget = DEFAULT_BUDGET


def allocate(problem: AllocationProblem) -> Outcome:
    """The first solution in Kubernetes' order."""
    demand = problem.demand
    view = problem.snapshot.view(problem.node, demand.features.visibility)
    if view.fault is not None:
        return Fatal(FatalCause.EVALUATION_ERROR, view.fault)
    supply = Supply(problem.snapshot, view, demand)
    try:
        check(demand, supply)
        solution = solve(demand, supply, problem.budget)
        if solution.status is SearchStatus.SOLVED:
            return allocation_of(demand, solution.ledger, (problem.node,) * len(demand.claims))
        return outcome_of(solution, view.pools)
    except SearchAborted as aborted:
        return aborted.fatal


def check(demand: Demand, supply: Supply) -> None:
    """Raises SearchAborted for the first error in the claims, before any search."""
    if demand.is_plain:
        # Its claims have none.
        return
    for index, claim in enumerate(demand.claims):
        least = 0
        for request in claim.requests:
            _raise_if(request.fault)
            least += min((_least(alternative, supply) for alternative in request.alternatives), default=0)
        if least > RESULTS_MAX:
            raise SearchAborted(Fatal(FatalCause.TOO_MANY_DEVICES, least, index))
        _raise_if(claim.fault)


def score_max(demand: Demand) -> int:
    """The score if every prioritized list gets its first alternative."""
    return ALTERNATIVES_MAX * sum(request.is_list for request in demand.requests)


def _least(alternative: Alternative, supply: Supply) -> int:
    _raise_if(alternative.fault)
    return supply.wanted(alternative)


def _raise_if(fatal: Fatal | None) -> None:
    if fatal is not None:
        raise SearchAborted(fatal)


def outcome_of(solution: Solution, pools: Sequence[VisiblePool] = ()) -> Impossible | BudgetExhausted:
    """The outcome of a search of these pools that found no solution."""
    if solution.status is SearchStatus.OUT_OF_STEPS:
        return BudgetExhausted(solution.steps)
    return Impossible(tuple(pool.pool_id for pool in pools if pool.layout.status is PoolState.INVALID))


def allocation_of(demand: Demand, ledger: Ledger, nodes: Sequence[NodeFacts]) -> Allocated:
    """What the claims get, each on its node, from what the search took."""
    picks: list[list[Pick]] = [[] for _ in demand.claims]
    for pick in ledger.picks.values():
        picks[pick.alternative.claim].append(pick)
    chosen: list[list[Alternative]] = [[] for _ in demand.claims]
    score = 0
    for index, request in enumerate(demand.requests):
        alternative = ledger.chosen.get(index, request.alternatives[0])
        chosen[request.claim].append(alternative)
        if request.is_list:
            score += ALTERNATIVES_MAX - request.alternatives.index(alternative)
    served = zip(nodes, demand.claims, picks, chosen, strict=True)
    return Allocated(
        tuple(
            AllocationAssembler(node, demand.features).allocation(claim, taken, alternatives)
            for node, claim, taken, alternatives in served
        ),
        score,
    )


# --- Allocation results ---------------------------------------------------------------------------------------------
# What a claim gets, from what the search picked for it: devices, configuration, and the nodes that can use it.


class AllocationAssembler(Struct, frozen=True):
    """Makes the allocations of claims on one node."""

    node: NodeFacts
    features: Features

    def allocation(self, demand: ClaimDemand, picks: Sequence[Pick], chosen: Sequence[Alternative]) -> ClaimAllocation:
        """What one claim gets; `chosen` has the alternative of each of its requests."""
        return ClaimAllocation(
            tuple(map(self._device, picks)), _configuration(demand, chosen), self._node_selector(picks)
        )

    def _device(self, pick: Pick) -> DeviceAllocation:
        alternative, (strip, bit) = pick.alternative, pick.candidate
        device = strip.slice.devices[bit]
        is_bound = self.features.binding_conditions
        consumed = _consumed(device, pick.charge) if pick.is_share else {}
        return DeviceAllocation(
            request=alternative.name,
            device=strip.slice.device_id(bit),
            is_share=pick.is_share,
            consumed_capacity=consumed,
            capacity_limits={
                name: max(limit, consumed.get(name, limit)) for name, limit in alternative.criteria.limits.items()
            },
            admin_access=alternative.is_admin,
            tolerations=alternative.tolerations,
            binding_conditions=device.binding_conditions if is_bound else (),
            binding_failure_conditions=device.binding_failure_conditions if is_bound else (),
            skip_node_operations=strip.slice.source.spec.skip_node_operations if self.features.is_experimental else (),
        )

    def _node_selector(self, picks: Iterable[Pick]) -> NodeSelector | None:
        """Selects the nodes that reach every device of the claim; None if all nodes do."""
        expressions: list[NodeSelectorRequirement] = []
        fields: list[NodeSelectorRequirement] = []
        for pick in picks:
            strip, bit = pick.candidate
            device = strip.slice.devices[bit]
            placed = device if strip.slice.selects_per_device else strip.slice.source.spec
            if placed.node_name or device.binds_to_node:
                return self._only_here()
            terms = (placed.node_selector.node_selector_terms or ()) if placed.node_selector is not None else ()
            if len(terms) > 1:
                raise _too_many_terms(pick)
            for term in terms:
                _merge(expressions, term.match_expressions)
                _merge(fields, term.match_fields)
        if not expressions and not fields:
            return None
        term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
        return NodeSelector(node_selector_terms=(term,))

    def _only_here(self) -> NodeSelector:
        here = NodeSelectorRequirement(key=NAME_FIELD, operator="In", values=(self.node.name,))
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(here,)),))


def _consumed(device: Device, charge: Charge) -> dict[str, Quantity]:
    amounts = zip(device.capacity, charge.amounts, strict=True)
    return {name: amount for name, amount in amounts if amount is not None}


def _too_many_terms(pick: Pick) -> SearchAborted:
    device_id = pick.candidate.strip.slice.device_id(pick.candidate.bit)
    return SearchAborted(Fatal(FatalCause.NODE_SELECTOR_TERMS, claim=pick.alternative.claim, device=device_id))


def _merge(known: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]) -> None:
    for requirement in more:
        if not any(_is_same(requirement, other) for other in known):
            known.append(requirement)


def _is_same(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    same_values = frozenset(one.values) == frozenset(other.values)
    return same_values and one.key == other.key and one.operator == other.operator


def _configuration(demand: ClaimDemand, chosen: Sequence[Alternative]) -> tuple[DeviceAllocationConfiguration, ...]:
    """The configuration of the classes, then that of the claim, as far as it concerns chosen alternatives."""
    configs = [*_from_classes(chosen), *_from_claim(demand, chosen)]
    return tuple(_for_all_if_complete(config, chosen) for config in configs)


def _from_classes(chosen: Sequence[Alternative]) -> Iterable[DeviceAllocationConfiguration]:
    users: dict[str, list[Alternative]] = {}
    for alternative in chosen:
        if alternative.device_class.spec.config:
            users.setdefault(alternative.device_class.metadata.name or "", []).append(alternative)
    for alternatives in users.values():
        names = tuple(str(alternative.name) for alternative in alternatives)
        for config in alternatives[0].device_class.spec.config:
            yield DeviceAllocationConfiguration(source=FROM_CLASS, requests=names, opaque=config.opaque)


def _from_claim(demand: ClaimDemand, chosen: Sequence[Alternative]) -> Iterable[DeviceAllocationConfiguration]:
    for config in demand.devices.config:
        named = _parsed(config.requests)
        if not named or any(alternative.name.is_in(named) for alternative in chosen):
            yield DeviceAllocationConfiguration(source=FROM_CLAIM, requests=config.requests, opaque=config.opaque)


def _for_all_if_complete(
    config: DeviceAllocationConfiguration, chosen: Sequence[Alternative]
) -> DeviceAllocationConfiguration:
    """An entry for every request is written without request names, as in Kubernetes."""
    named = _parsed(config.requests)
    if named and all(alternative.name.is_in(named) for alternative in chosen):
        return DeviceAllocationConfiguration(source=config.source, opaque=config.opaque)
    return config


def _parsed(names: Iterable[str]) -> frozenset[RequestName]:
    return frozenset(map(RequestName.parse, names))
