"""Claims with one thing changed: the parts of a claim that are put to the allocator, and the changes that are proposed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from dralloc.devices.allocator.requests import Alternative, Demand
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import (
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)

Claims = tuple[ResourceClaim, ...]


class Slot(NamedTuple):
    """Where a request, or an alternative of it, stands in the claims."""

    claim: int
    request: int
    alternative: int | None = None

    def read(self, claims: Claims) -> ExactDeviceRequest | DeviceSubRequest:
        request = requests_of(claims[self.claim])[self.request]
        if self.alternative is not None:
            return request.first_available[self.alternative]
        assert request.exactly is not None, "a request without alternatives is exact"
        return request.exactly


def slots(demand: Demand) -> Iterator[tuple[Slot, Alternative]]:
    """Every alternative of every request, and where it stands."""
    for claim_index, claim in enumerate(demand.claims):
        for request_index, request in enumerate(claim.requests):
            for index, alternative in enumerate(request.alternatives):
                yield Slot(claim_index, request_index, index if request.is_list else None), alternative


def requests_of(claim: ResourceClaim) -> tuple[DeviceRequest, ...]:
    return claim.spec.devices.requests or ()


def with_request(claims: Claims, claim: int, position: int, request: DeviceRequest) -> Claims:
    requests = requests_of(claims[claim])
    return with_claim(claims, claim, requests=(*requests[:position], request, *requests[position + 1 :]))


def with_claim(claims: Claims, position: int, **changes: Any) -> Claims:
    """The claims with members of what one of them asks for changed: its requests, its constraints."""
    claim = claims[position]
    devices = replace(claim.spec.devices, **changes)
    changed = replace(claim, spec=replace(claim.spec, devices=devices))
    return (*claims[:position], changed, *claims[position + 1 :])


def with_requests_only(claims: Claims, claim: int, kept: Collection[int]) -> Claims:
    """The claims, one of them with only these requests, and its constraints for them alone."""
    requests = tuple(request for position, request in enumerate(requests_of(claims[claim])) if position in kept)
    constraints = tuple(
        narrowed
        for constraint in claims[claim].spec.devices.constraints
        if (narrowed := _narrowed(constraint, requests)) is not None
    )
    return with_claim(claims, claim, requests=requests, constraints=constraints)


def without_constraint(claims: Claims, claim: int, position: int) -> Claims:
    constraints = claims[claim].spec.devices.constraints
    return with_claim(claims, claim, constraints=(*constraints[:position], *constraints[position + 1 :]))


def with_alternative_only(claims: Claims, slot: Slot) -> Claims:
    """The claims, one request of which has no other alternative than this."""
    assert slot.alternative is not None, "an exact request has no alternatives"
    request = requests_of(claims[slot.claim])[slot.request]
    alone = replace(request, first_available=(request.first_available[slot.alternative],))
    return with_request(claims, slot.claim, slot.request, alone)


def _narrowed(constraint: DeviceConstraint, requests: tuple[DeviceRequest, ...]) -> DeviceConstraint | None:
    """The constraint for these requests; None where it says nothing about them."""
    if not constraint.requests:
        return constraint
    names = {name for request in requests for name in names_of(request)}
    covered = tuple(name for name in constraint.requests if RequestName.parse(name) in names)
    return replace(constraint, requests=covered) if covered else None


def names_of(request: DeviceRequest) -> Iterator[RequestName]:
    """The names by which a constraint can mean the request, or one of its alternatives."""
    yield RequestName(request.name)
    for alternative in request.first_available:
        yield RequestName(request.name, alternative.name)
