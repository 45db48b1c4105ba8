"""What a pod's claims ask for, checked and put in the order of the search. Worked out once a pod, used on every node.

A request is served by exactly one of its alternatives: the only one of an exact request, or one of a prioritized list
(KEP-4816). What is wrong with a claim is recorded where it is found and reported by `allocate`, because on some nodes
another fault comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dralloc.allocator.attribute_constraints import Constraint
from dralloc.allocator.candidate_devices import Profile
from dralloc.allocator.features import Features
from dralloc.allocator.outcome import Fatal
from dralloc.api.codec import encode
from dralloc.api.resource_v1 import (
    ALL,
    EXACT_COUNT,
    CapacityRequirements,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from dralloc.devices.identity import ClaimId


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """One way to serve a request: `count` devices that fit the profile, or all of them."""

    number: int
    name: str
    claim: int
    claim_id: ClaimId
    device_class: DeviceClass
    profile: Profile
    takes_all: bool
    count: int
    is_admin: bool
    tolerations: tuple[DeviceToleration, ...]
    # Those of the claim's constraints that cover it.
    constraints: tuple[Constraint, ...]
    fault: Fatal | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    name: str
    claim: int
    alternatives: tuple[Alternative, ...]
    is_list: bool
    fault: Fatal | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ClaimDemand:
    claim: ResourceClaim
    claim_id: ClaimId
    requests: tuple[Request, ...]
    fault: Fatal | None = None


@dataclass(frozen=True, eq=False)
class Demand:
    """The unallocated claims of one pod."""

    claims: tuple[ClaimDemand, ...]
    features: Features
    # The requests of all claims, in the order in which they are served.
    requests: tuple[Request, ...] = field(init=False)
    alternatives: tuple[Alternative, ...] = field(init=False)

    def __post_init__(self) -> None:
        requests = tuple(request for claim in self.claims for request in claim.requests)
        object.__setattr__(self, "requests", requests)
        alternatives = tuple(alternative for request in requests for alternative in request.alternatives)
        object.__setattr__(self, "alternatives", alternatives)

    @cached_property
    def shape(self) -> bytes:
        """The same for all demands that get the same devices everywhere: what "a pod like this one" means."""
        classes = {found.device_class.metadata.name: found.device_class.spec for found in self.alternatives}
        parts = ([claim.claim.spec for claim in self.claims], sorted(classes.items(), key=lambda entry: entry[0]))
        return encode(parts) + repr(self.features).encode()


def compile_demand(claims: Iterable[ResourceClaim], classes: Mapping[str, DeviceClass], features: Features) -> Demand:
    compiler = _Compiler(classes, features)
    return Demand(tuple(compiler.claim(index, claim) for index, claim in enumerate(claims)), features)


_SubRequest = ExactDeviceRequest | DeviceSubRequest
_NO_CLASS = DeviceClass()


class _Compiler:
    def __init__(self, classes: Mapping[str, DeviceClass], features: Features) -> None:
        self._classes = classes
        self._features = features
        self._alternatives = 0

    def claim(self, index: int, claim: ResourceClaim) -> ClaimDemand:
        claim_id = ClaimId.of(claim)
        devices = claim.spec.devices
        constraints, fault = self._constraints(claim_id, devices.constraints)
        requests = tuple(self._request(index, claim_id, request, constraints) for request in devices.requests or ())
        return ClaimDemand(claim, claim_id, requests, fault)

    def _constraints(
        self, claim_id: ClaimId, stated: Sequence[DeviceConstraint]
    ) -> tuple[tuple[Constraint, ...], Fatal | None]:
        fault = None
        constraints: list[Constraint] = []
        for position, constraint in enumerate(stated):
            attribute = constraint.match_attribute or constraint.distinct_attribute
            if attribute is None:
                fault = fault or Fatal(f"constraint #{position} is of no known kind", claim_id)
                continue
            constraints.append(
                Constraint(
                    attribute=attribute,
                    wants_equal=constraint.match_attribute is not None,
                    requests=frozenset(constraint.requests),
                    accepts_lists=self._features.list_attributes,
                )
            )
        return tuple(constraints), fault

    def _request(
        self, claim: int, claim_id: ClaimId, request: DeviceRequest, constraints: tuple[Constraint, ...]
    ) -> Request:
        is_list = bool(request.first_available)
        stated: tuple[_SubRequest, ...] = request.first_available or (
            (request.exactly,) if request.exactly is not None else ()
        )
        alternatives = tuple(self._alternative(claim, claim_id, request, entry, constraints) for entry in stated)
        fault = self._fault_of_request(request, stated)
        return Request(
            request.name, claim, alternatives, is_list, Fatal(fault, claim_id, request.name) if fault else None
        )

    def _fault_of_request(self, request: DeviceRequest, stated: tuple[_SubRequest, ...]) -> str | None:
        features = self._features
        if not stated:
            return "has neither `exactly` nor `firstAvailable`: it asks for something that this version does not know"
        if request.first_available and not features.prioritized_list:
            return "has alternatives, but the feature DRAPrioritizedList is off"
        if not features.consumable_capacity and any(entry.capacity is not None for entry in stated):
            return "asks for capacity, but the feature DRAConsumableCapacity is off"
        return None

    def _alternative(
        self,
        claim: int,
        claim_id: ClaimId,
        request: DeviceRequest,
        stated: _SubRequest,
        constraints: tuple[Constraint, ...],
    ) -> Alternative:
        name = f"{request.name}/{stated.name}" if isinstance(stated, DeviceSubRequest) else request.name
        number, self._alternatives = self._alternatives, self._alternatives + 1
        device_class = self._classes.get(stated.device_class_name)
        fault = self._fault_of_alternative(stated, device_class)
        return Alternative(
            number=number,
            name=name,
            claim=claim,
            claim_id=claim_id,
            device_class=device_class or _NO_CLASS,
            profile=self._profile(stated, device_class or _NO_CLASS),
            takes_all=stated.allocation_mode == ALL,
            count=stated.count,
            is_admin=isinstance(stated, ExactDeviceRequest) and bool(stated.admin_access),
            tolerations=stated.tolerations,
            constraints=tuple(found for found in constraints if found.covers(request.name, name)),
            fault=Fatal(fault, claim_id, name, _class_at_fault(stated, device_class)) if fault else None,
        )

    def _fault_of_alternative(self, stated: _SubRequest, device_class: DeviceClass | None) -> str | None:
        if stated.derived_attributes:
            return "has derived attributes, which are not supported"
        if any(selector.cel is None for selector in stated.selectors):
            return "has a selector of no known kind"
        if (
            isinstance(stated, ExactDeviceRequest)
            and stated.admin_access is not None
            and not self._features.admin_access
        ):
            return "asks for admin access, but the feature DRAAdminAccess is off"
        if not stated.device_class_name:
            return "names no device class"
        if device_class is None:
            return "there is no such device class"
        if stated.allocation_mode not in (EXACT_COUNT, ALL):
            return f"has the unknown allocation mode {stated.allocation_mode!r}"
        return None

    def _profile(self, stated: _SubRequest, device_class: DeviceClass) -> Profile:
        features = self._features
        return Profile(
            class_selectors=_expressions(device_class.spec.selectors),
            request_selectors=_expressions(stated.selectors),
            capacity=_capacity(stated.capacity) if features.consumable_capacity else None,
            tolerations=stated.tolerations if features.device_taints else None,
            allows_binding=features.binding_conditions,
            allows_counters=features.partitionable_devices,
            fractional_ranges=features.fractional_ranges,
        )


def _class_at_fault(stated: _SubRequest, device_class: DeviceClass | None) -> str | None:
    return stated.device_class_name if stated.device_class_name and device_class is None else None


def _expressions(selectors: tuple[DeviceSelector, ...]) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in selectors if selector.cel is not None)


def _capacity(stated: CapacityRequirements | None) -> tuple[tuple[str, str], ...]:
    asked = stated.requests if stated is not None else {}
    return tuple(sorted((name, str(quantity)) for name, quantity in asked.items()))
