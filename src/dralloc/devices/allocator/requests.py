"""What a pod's claims request, checked and in the order of the search. Compiled once for a pod, used on every node.

A request is served by exactly one of its alternatives: the only one of an exact request, or one of a prioritized list
(KEP-4816). A demand has no names of claims: pods whose claims request the same devices share one. Errors in a claim are
recorded where they are found and reported by `allocate`, because on some nodes another error comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dralloc.devices.allocator.attribute_constraints import Constraint
from dralloc.devices.allocator.candidate_devices import DeviceCriteria
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import RESULTS_MAX, Fatal, FatalCause
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import (
    AGGREGATED_CAPACITY,
    ALL,
    EXACT_COUNT,
    FIRST_FIT,
    LEAST_AVAILABLE,
    MOST_AVAILABLE,
    CapacityRequirements,
    DeviceAllocationsRange,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)

__all__ = ["compile_demand"]

_SubRequest = ExactDeviceRequest | DeviceSubRequest


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """One way to serve a request: `count` devices that fit the criteria, or all of them. `claim` is the claim's index."""

    number: int
    name: RequestName
    claim: int
    device_class: DeviceClass
    criteria: DeviceCriteria
    takes_all: bool
    count: int
    is_admin: bool
    tolerations: tuple[DeviceToleration, ...]
    # The claim's constraints that cover the alternative.
    constraints: tuple[Constraint, ...]
    # Which devices are tried first, and how often a device may be allocated already.
    preference: str = FIRST_FIT
    allocations: DeviceAllocationsRange | None = None
    # At most `count` devices give the capacity together.
    is_aggregated: bool = False
    fault: Fatal | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RequestDemand:
    name: RequestName
    claim: int
    alternatives: tuple[Alternative, ...]
    is_list: bool
    fault: Fatal | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ClaimDemand:
    devices: DeviceClaim
    requests: tuple[RequestDemand, ...]
    fault: Fatal | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The unallocated claims of one pod."""

    claims: tuple[ClaimDemand, ...]
    features: Features
    # The requests of all claims, in the order in which they are served.
    requests: tuple[RequestDemand, ...] = field(init=False)
    alternatives: tuple[Alternative, ...] = field(init=False)
    # True if the answer depends on how often devices are allocated.
    counts_allocations: bool = field(init=False)
    # True if the claims may fit only after other claims got devices.
    wants_used_devices: bool = field(init=False)
    # True if only a device can make a search end with an error, and every solution has the same score.
    is_plain: bool = field(init=False)

    def __post_init__(self) -> None:
        requests = tuple(request for claim in self.claims for request in claim.requests)
        object.__setattr__(self, "requests", requests)
        alternatives = tuple(alternative for request in requests for alternative in request.alternatives)
        object.__setattr__(self, "alternatives", alternatives)
        counts = any(found.preference != FIRST_FIT or found.allocations is not None for found in alternatives)
        object.__setattr__(self, "counts_allocations", counts)
        object.__setattr__(self, "wants_used_devices", _wants_used_devices(self))
        object.__setattr__(self, "is_plain", _is_plain(self))


def compile_demand(claims: Iterable[ResourceClaim], classes: Mapping[str, DeviceClass], features: Features) -> Demand:
    """What the claims request, with the criteria of their classes; it is the same for all nodes."""
    compiler = _Compiler(classes, features)
    return Demand(tuple(compiler.claim(index, claim.spec.devices) for index, claim in enumerate(claims)), features)


def _wants_used_devices(demand: Demand) -> bool:
    """A request can require that; and where the first share decides for those that follow, one of another claim may decide better."""
    if demand.features.capacity_strategies and len(demand.requests) > 1:
        return True
    return any(found.allocations is not None and found.allocations.min for found in demand.alternatives)


def _is_plain(demand: Demand) -> bool:
    """That holds if every request has one alternative with a fixed number of devices, and no part has an error."""
    if any(request.is_list or request.fault is not None for request in demand.requests):
        return False
    if any(found.fault is not None or found.takes_all for found in demand.alternatives):
        return False
    if any(constraint.expressions for found in demand.alternatives for constraint in found.constraints):
        return False
    return all(
        claim.fault is None
        and sum(found.count for request in claim.requests for found in request.alternatives) <= RESULTS_MAX
        for claim in demand.claims
    )


# --- Checks that need no compiled demand ------------------------------------------------------------------------


def request_fault(request: DeviceRequest, features: Features) -> FatalCause | None:
    """Why the request as such cannot be served, whatever its alternatives ask for."""
    stated = _stated(request)
    if not stated:
        return FatalCause.UNKNOWN_REQUEST
    if request.first_available and not features.prioritized_list:
        return FatalCause.PRIORITIZED_LIST_OFF
    if not features.consumable_capacity and any(entry.capacity is not None for entry in stated):
        return FatalCause.CONSUMABLE_CAPACITY_OFF
    if not features.capacity_limits and any(entry.capacity is not None and entry.capacity.limits for entry in stated):
        return FatalCause.CAPACITY_LIMITS_OFF
    return None


def attributes_of(constraint: DeviceConstraint) -> tuple[str, ...]:
    """The attributes that a constraint compares; none if it is of no known kind."""
    attribute = constraint.match_attribute or constraint.distinct_attribute
    return constraint.distinct_attributes if attribute is None else (attribute,)


def class_names(request: DeviceRequest) -> list[str]:
    """The device class of each alternative, in their order."""
    return [stated.device_class_name for stated in _stated(request)]


def alternative_name(request: DeviceRequest, place: int) -> RequestName:
    """The name of the alternative that has this place in their order."""
    return _name_of(request, _stated(request)[place])


# --- Compilation ------------------------------------------------------------------------------------------------


_NO_CLASS = DeviceClass()


class _Compiler:
    def __init__(self, classes: Mapping[str, DeviceClass], features: Features) -> None:
        self._classes = classes
        self._features = features
        self._alternatives = 0
        self._constraints_count = 0
        # Constraints on derived attributes, by the number of the constraint and the expressions.
        self._variants: dict[tuple[int, tuple[str | None, ...]], Constraint] = {}

    def claim(self, index: int, devices: DeviceClaim) -> ClaimDemand:
        constraints, fault = self._constraints(index, devices.constraints)
        requests = tuple(self._request(index, request, constraints) for request in devices.requests or ())
        return ClaimDemand(devices, requests, fault)

    def _constraints(
        self, claim: int, stated: Sequence[DeviceConstraint]
    ) -> tuple[tuple[Constraint, ...], Fatal | None]:
        fault = None
        constraints: list[Constraint] = []
        for position, constraint in enumerate(stated):
            attributes = attributes_of(constraint)
            cause = None if attributes else FatalCause.UNKNOWN_CONSTRAINT
            if constraint.distinct_attributes and not self._features.distinct_attributes:
                cause = FatalCause.DISTINCT_ATTRIBUTES_OFF
            if cause is not None:
                fault = fault or Fatal(cause, position, claim)
                continue
            constraints.append(
                Constraint(
                    attributes=attributes,
                    wants_equal=constraint.match_attribute is not None,
                    requests=frozenset(map(RequestName.parse, constraint.requests)),
                    accepts_lists=self._features.list_attributes,
                    number=self._constraints_count,
                )
            )
            self._constraints_count += 1
        return tuple(constraints), fault

    def _request(self, claim: int, request: DeviceRequest, constraints: tuple[Constraint, ...]) -> RequestDemand:
        alternatives = tuple(self._alternative(claim, request, entry, constraints) for entry in _stated(request))
        cause = request_fault(request, self._features)
        name = RequestName(request.name)
        fault = Fatal(cause, claim=claim, request=name) if cause is not None else None
        return RequestDemand(name, claim, alternatives, bool(request.first_available), fault)

    def _alternative(
        self, claim: int, request: DeviceRequest, stated: _SubRequest, constraints: tuple[Constraint, ...]
    ) -> Alternative:
        name = _name_of(request, stated)
        number, self._alternatives = self._alternatives, self._alternatives + 1
        device_class = self._classes.get(stated.device_class_name)
        cause = self._fault_of_alternative(stated, device_class)
        return Alternative(
            number=number,
            name=name,
            claim=claim,
            device_class=device_class or _NO_CLASS,
            criteria=self._profile(stated, device_class or _NO_CLASS),
            takes_all=stated.allocation_mode == ALL,
            is_aggregated=stated.allocation_mode == AGGREGATED_CAPACITY,
            count=stated.count,
            is_admin=isinstance(stated, ExactDeviceRequest) and bool(stated.admin_access),
            tolerations=stated.tolerations,
            preference=_preference(stated, device_class or _NO_CLASS),
            allocations=stated.allocations,
            constraints=self._derived(stated, tuple(found for found in constraints if found.covers(name))),
            fault=_fatal(cause, claim, name, stated, device_class or _NO_CLASS) if cause is not None else None,
        )

    def _derived(self, stated: _SubRequest, constraints: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
        """The constraints as they apply to a request that derives attributes. Equal ones are one object."""
        expressions = {derived.name: derived.expression for derived in stated.derived_attributes}
        if not expressions:
            return constraints
        return tuple(
            self._variants.setdefault((constraint.number, derived), replace(constraint, expressions=derived))
            if any(derived := tuple(map(expressions.get, constraint.attributes)))
            else constraint
            for constraint in constraints
        )

    def _fault_of_alternative(self, stated: _SubRequest, device_class: DeviceClass | None) -> FatalCause | None:
        if stated.derived_attributes and not self._features.derived_attributes:
            return FatalCause.DERIVED_ATTRIBUTES
        if any(selector.cel is None for selector in stated.selectors):
            return FatalCause.UNKNOWN_SELECTOR
        if (
            isinstance(stated, ExactDeviceRequest)
            and stated.admin_access is not None
            and not self._features.admin_access
        ):
            return FatalCause.ADMIN_ACCESS_OFF
        if not stated.device_class_name:
            return FatalCause.NO_CLASS_NAME
        if device_class is None:
            return FatalCause.CLASS_MISSING
        if stated.allocation_mode == AGGREGATED_CAPACITY:
            if not self._features.aggregated_capacity:
                return FatalCause.AGGREGATED_CAPACITY_OFF
            if stated.capacity is None or not stated.capacity.requests:
                return FatalCause.NO_TOTALS
        elif stated.allocation_mode not in (EXACT_COUNT, ALL):
            return FatalCause.UNKNOWN_ALLOCATION_MODE
        return self._fault_of_preference(stated, _preference(stated, device_class))

    def _fault_of_preference(self, stated: _SubRequest, preference: str) -> FatalCause | None:
        if preference not in (FIRST_FIT, LEAST_AVAILABLE, MOST_AVAILABLE):
            return FatalCause.UNKNOWN_PREFERENCE
        if self._features.device_preference:
            return None
        if stated.allocations is not None:
            return FatalCause.ALLOCATIONS_OFF
        return FatalCause.DEVICE_PREFERENCE_OFF if preference != FIRST_FIT else None

    def _profile(self, stated: _SubRequest, device_class: DeviceClass) -> DeviceCriteria:
        features = self._features
        return DeviceCriteria(
            class_selectors=_expressions(device_class.spec.selectors),
            request_selectors=_expressions(stated.selectors),
            capacity=_capacity(stated.capacity) if features.consumable_capacity else None,
            limits=_limits(stated.capacity) if features.consumable_capacity else (),
            gates_off=features.device_gates_off,
            tolerations=stated.tolerations if features.device_taints else None,
            allows_binding=features.binding_conditions,
            allows_counters=features.partitionable_devices,
            fractional_ranges=features.fractional_ranges,
            skips_negative_amounts=features.skips_negative_amounts,
            is_aggregated=stated.allocation_mode == AGGREGATED_CAPACITY,
        )


def _stated(request: DeviceRequest) -> tuple[_SubRequest, ...]:
    return request.first_available or ((request.exactly,) if request.exactly is not None else ())


def _name_of(request: DeviceRequest, stated: _SubRequest) -> RequestName:
    return RequestName(request.name, stated.name if isinstance(stated, DeviceSubRequest) else None)


def _fatal(cause: FatalCause, claim: int, name: RequestName, stated: _SubRequest, device_class: DeviceClass) -> Fatal:
    class_name = stated.device_class_name
    match cause:
        case FatalCause.CLASS_MISSING:
            return Fatal(cause, class_name, claim, name, device_class=class_name)
        case FatalCause.UNKNOWN_ALLOCATION_MODE:
            return Fatal(cause, stated.allocation_mode, claim, name)
        case FatalCause.UNKNOWN_PREFERENCE | FatalCause.DEVICE_PREFERENCE_OFF:
            of_class = None if stated.device_preference else class_name
            return Fatal(cause, _preference(stated, device_class), claim, name, device_class=of_class)
        case _:
            return Fatal(cause, claim=claim, request=name)


def _preference(stated: _SubRequest, device_class: DeviceClass) -> str:
    """The preference of the request, else that of its class. A request for all devices has none to prefer."""
    if stated.allocation_mode == ALL:
        return FIRST_FIT
    return stated.device_preference or device_class.spec.device_preference or FIRST_FIT


def _expressions(selectors: tuple[DeviceSelector, ...]) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in selectors if selector.cel is not None)


def _capacity(stated: CapacityRequirements | None) -> tuple[tuple[str, str], ...]:
    """What is requested. A limit without a request is a request for as much."""
    asked = {**stated.limits, **stated.requests} if stated is not None else {}
    return tuple(sorted((name, quantity.exact_text) for name, quantity in asked.items()))


def _limits(stated: CapacityRequirements | None) -> tuple[tuple[str, str], ...]:
    limits = stated.limits if stated is not None else {}
    return tuple(sorted((name, quantity.exact_text) for name, quantity in limits.items()))
