"""What a claim gets, from what the search picked for it: devices, configuration, and the nodes that can use it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from dralloc.allocator.consumable_capacity import Charge
from dralloc.allocator.features import Features
from dralloc.allocator.ledger import Pick
from dralloc.allocator.outcome import ClaimAllocation, DeviceAllocation, Fatal, FatalCause, SearchAborted
from dralloc.allocator.requests import Alternative, ClaimDemand
from dralloc.api.meta_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dralloc.api.request_name import RequestName
from dralloc.api.resource_v1 import (
    FROM_CLAIM,
    FROM_CLASS,
    Device,
    DeviceAllocationConfiguration,
)
from dralloc.primitives.quantity import Quantity
from dralloc.snapshot.node_selectors import NAME_FIELD, NodeFacts


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
