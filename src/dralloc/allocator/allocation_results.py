"""The AllocationResult of a claim, from what the search picked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from dralloc.allocator.features import Features
from dralloc.allocator.ledger import Pick
from dralloc.allocator.outcome import Fatal, Fault
from dralloc.allocator.requests import Alternative, ClaimDemand
from dralloc.allocator.supply import Place
from dralloc.api.meta_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dralloc.api.resource_v1 import (
    FROM_CLAIM,
    FROM_CLASS,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from dralloc.snapshot.node_selectors import NAME_FIELD, Node


class Assembly(Struct, frozen=True):
    """What results are made with: the node, the features, and where new share ids come from."""

    node: Node
    features: Features
    share_ids: Callable[[], str]

    def result(self, demand: ClaimDemand, picks: Sequence[Pick], chosen: Sequence[Alternative]) -> AllocationResult:
        """The result for one claim; `chosen` has the alternative of each of its requests."""
        devices = DeviceAllocationResult(
            results=tuple(map(self._device_result, picks)), config=_configuration(demand, chosen)
        )
        return AllocationResult(devices=devices, node_selector=self._node_selector(demand, picks))

    def _device_result(self, pick: Pick) -> DeviceRequestAllocationResult:
        alternative, (strip, bit) = pick.alternative, pick.place
        device = strip.slice.devices[bit]
        pool_id = strip.slice.pool_id
        is_bound = self.features.binding_conditions
        consumed = dict(zip(device.capacity, pick.charge.amounts, strict=True)) if pick.is_share else {}
        return DeviceRequestAllocationResult(
            request=alternative.name,
            driver=pool_id.driver,
            pool=pool_id.pool,
            device=device.name,
            admin_access=True if alternative.is_admin else None,
            tolerations=alternative.tolerations,
            binding_conditions=device.binding_conditions if is_bound else (),
            binding_failure_conditions=device.binding_failure_conditions if is_bound else (),
            share_id=self.share_ids() if pick.is_share else None,
            consumed_capacity=consumed,
            skip_node_operations=strip.slice.source.spec.skip_node_operations if self.features.is_experimental else (),
        )

    # --- Where the claim can be used ----------------------------------------------------------------------------

    def _node_selector(self, demand: ClaimDemand, picks: Iterable[Pick]) -> NodeSelector | None:
        """The nodes that can reach every device of the claim; None where all can."""
        expressions: list[NodeSelectorRequirement] = []
        fields: list[NodeSelectorRequirement] = []
        for pick in picks:
            strip, bit = pick.place
            device = strip.slice.devices[bit]
            placed = device if strip.slice.selects_per_device else strip.slice.source.spec
            if placed.node_name or device.binds_to_node:
                return self._only_here()
            terms = (placed.node_selector.node_selector_terms or ()) if placed.node_selector is not None else ()
            if len(terms) > 1:
                raise _too_many_terms(demand, pick.place)
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


def _too_many_terms(demand: ClaimDemand, place: Place) -> Fault:
    device_id = place.strip.slice.device_id(place.bit)
    return Fault(Fatal("its node selector has more than one term", demand.claim_id, device=device_id))


def _merge(known: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]) -> None:
    for requirement in more:
        if not any(_is_same(requirement, other) for other in known):
            known.append(requirement)


def _is_same(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    same_values = frozenset(one.values) == frozenset(other.values)
    return same_values and one.key == other.key and one.operator == other.operator


# --- Configuration ----------------------------------------------------------------------------------------------


def _configuration(demand: ClaimDemand, chosen: Sequence[Alternative]) -> tuple[DeviceAllocationConfiguration, ...]:
    """First what the classes say, then what the claim says, each for the requests that it concerns."""
    configs = [*_from_classes(chosen), *_from_claim(demand, chosen)]
    return tuple(_for_all_if_complete(config, demand, chosen) for config in configs)


def _from_classes(chosen: Sequence[Alternative]) -> Iterable[DeviceAllocationConfiguration]:
    users: dict[str, list[Alternative]] = {}
    for alternative in chosen:
        users.setdefault(alternative.device_class.metadata.name or "", []).append(alternative)
    for alternatives in users.values():
        names = tuple(alternative.name for alternative in alternatives)
        for config in alternatives[0].device_class.spec.config:
            yield DeviceAllocationConfiguration(source=FROM_CLASS, requests=names, opaque=config.opaque)


def _from_claim(demand: ClaimDemand, chosen: Sequence[Alternative]) -> Iterable[DeviceAllocationConfiguration]:
    concerned = {request.name for request in demand.requests} | {alternative.name for alternative in chosen}
    for config in demand.claim.spec.devices.config:
        if not config.requests or not concerned.isdisjoint(config.requests):
            yield DeviceAllocationConfiguration(source=FROM_CLAIM, requests=config.requests, opaque=config.opaque)


def _for_all_if_complete(
    config: DeviceAllocationConfiguration, demand: ClaimDemand, chosen: Sequence[Alternative]
) -> DeviceAllocationConfiguration:
    """An entry that names every request says so by naming none."""
    named = frozenset(config.requests)
    if named and all(
        request.name in named or alternative.name in named
        for request, alternative in zip(demand.requests, chosen, strict=True)
    ):
        return DeviceAllocationConfiguration(source=config.source, opaque=config.opaque)
    return config
