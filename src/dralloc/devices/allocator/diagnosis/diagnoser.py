"""`Diagnoser.reason`: why a node does not do, as one reason, for as little work as possible.

Most of the time a single request has too few devices, each taken by itself, and its funnel says why. Where every request
would find its devices, parts of the claims are put to the allocator itself, with little budget allowed, until a part is
found that does not fit and is as small as can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.attribute_constraints import Values
from dralloc.devices.allocator.diagnosis.claim_edits import Claims, with_requests_only, without_constraint
from dralloc.devices.allocator.diagnosis.device_funnel import Spot, spots
from dralloc.devices.allocator.diagnosis.device_survey import Survey
from dralloc.devices.allocator.diagnosis.obstacles import obstacle
from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonCause
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, Fatal, FatalCause, Impossible, Outcome
from dralloc.devices.allocator.requests import ClaimDemand, Demand, RequestDemand, attributes_of, compile_demand
from dralloc.devices.allocator.solver import StepBudget
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import DeviceConstraint, ResourceClaim, ResourceClaimSpec
from dralloc.primitives.phrases import counted, listed

PartT = TypeVar("PartT")

# What takes more steps than this is not what a short reason is about.
PROBE_BUDGET: Final = StepBudget(steps_max=500)


class Diagnoser:
    """The reasons of one demand at one revision of the cluster, for any number of nodes.

    With `claims`, the names of the demand's claims, reasons have these in place of the claims' indices.
    """

    def __init__(self, demand: Demand, snapshot: Snapshot, claims: Sequence[ClaimId] | None = None) -> None:
        self.demand = demand
        self._claims = claims
        self.survey = Survey(demand, snapshot)
        self._snapshot = snapshot
        self._classes = {found.device_class.metadata.name: found.device_class for found in demand.alternatives}

    def reason(self, node: NodeFacts, outcome: Outcome) -> Reason:
        """Why the node cannot serve the claims. `outcome` is the allocator's answer for it."""
        reason = self._reason(node, outcome)
        return reason.named(self._claims) if self._claims is not None else reason

    def _reason(self, node: NodeFacts, outcome: Outcome) -> Reason:
        match outcome:
            case Fatal():
                return reason_of_error(self.demand, outcome)
            case BudgetExhausted(steps):
                return Reason(cause=ReasonCause.UNDECIDED, subject=f"not decided within {steps} steps")
            case Impossible():
                return self._blocked(node) or self._blame_parts(node)
            case Allocated():
                raise AssertionError(f"{node.name} does fit")

    # --- One request by itself ------------------------------------------------------------------------------------------

    def _blocked(self, node: NodeFacts) -> Reason | None:
        """The first request that has too few devices, each taken by itself, with any of its alternatives."""
        return next(filter(None, (self.obstacle(node, request) for request in self.demand.requests)), None)

    def obstacle(self, node: NodeFacts, request: RequestDemand) -> Reason | None:
        """Why none of the request's alternatives has enough devices: the reason of the one that comes nearest."""
        reasons: list[Reason] = []
        for alternative in request.alternatives:
            funnel = self.survey.funnel(node, alternative)
            reason = obstacle(self.survey, node, funnel)
            if reason is None:
                return None
            reasons.append(reason)
        nearest = min(reasons, key=lambda reason: reason.distance)
        if len(request.alternatives) == 1:
            tells_request = _is_one_of_several(self.demand.claims[request.claim])
            return replace(nearest, tells_claim=self._has_several_claims, tells_request=tells_request)
        return replace(nearest, tells_claim=self._has_several_claims, is_nearest=True)

    @property
    def _has_several_claims(self) -> bool:
        return len(self.demand.claims) > 1

    # --- Parts that do not fit ------------------------------------------------------------------------------------------

    def _blame_parts(self, node: NodeFacts) -> Reason:
        """The smallest part of the claims that does not fit, where every request has devices enough for itself."""
        parts = [(index, _probe(claim)) for index, claim in enumerate(self.demand.claims)]
        for index, part in parts:
            if len(parts) == 1 or not self.fits(node, (part,)):
                return self._blame_claim(node, index, (part,))
        culprits = _smallest_misfit(parts, lambda kept: self.fits(node, tuple(part for _, part in kept)))
        return Reason(cause=ReasonCause.TOGETHER, claims=tuple(index for index, _ in culprits))

    def _blame_claim(self, node: NodeFacts, index: int, whole: Claims) -> Reason:
        claim = self.demand.claims[index]
        for position, request in enumerate(claim.requests):
            part = with_requests_only(whole, 0, {position})
            if len(claim.requests) == 1 or not self.fits(node, part):
                return self._blame_request(node, request, part)
        for position, constraint in enumerate(claim.devices.constraints):
            if self.fits(node, without_constraint(whole, 0, position)):
                return self._constraint_reason(node, constraint, claim.requests)
        numbered = list(enumerate(claim.requests))
        culprits = _smallest_misfit(
            numbered, lambda kept: self.fits(node, with_requests_only(whole, 0, {position for position, _ in kept}))
        )
        names = listed(request.name.main for _, request in culprits)
        return Reason(
            cause=ReasonCause.TOGETHER, subject=f"requests {names}", claim=index, tells_claim=self._has_several_claims
        )

    def _blame_request(self, node: NodeFacts, request: RequestDemand, part: Claims) -> Reason:
        """Why the devices of one request cannot be taken together. `part` is the claim with this request alone."""
        for position, constraint in enumerate(part[0].spec.devices.constraints):
            if self.fits(node, without_constraint(part, 0, position)):
                return self._constraint_reason(node, constraint, (request,))
        wanted = min(self.survey.funnel(node, alternative).wanted for alternative in request.alternatives)
        return Reason(
            cause=ReasonCause.TOGETHER,
            subject=f"{counted(wanted, 'device')} for request {request.name}",
            claim=request.claim,
            request=request.name,
            tells_claim=self._has_several_claims,
        )

    def fits(self, node: NodeFacts, claims: Claims) -> bool:
        """Whether a part of the claims, were it alone, fits on the node; no, where that is not easily seen."""
        demand = compile_demand(claims, self._classes, self.demand.features)
        problem = AllocationProblem(demand, node, self._snapshot, PROBE_BUDGET)
        return isinstance(allocate(problem), Allocated)

    # --- Constraints ------------------------------------------------------------------------------------------------------

    def _constraint_reason(
        self, node: NodeFacts, stated: DeviceConstraint, requests: Sequence[RequestDemand]
    ) -> Reason:
        """That these requests find no devices that agree, or differ, in an attribute."""
        attributes = attributes_of(stated)
        devices: dict[DeviceId, Spot] = {}
        values: dict[DeviceId, Values] = {}
        wanted = 0
        for request in requests:
            covered = [
                (alternative, constraint)
                for alternative in request.alternatives
                for constraint in alternative.constraints
                if constraint.attributes == attributes
            ]
            funnels = [self.survey.funnel(node, alternative) for alternative, _ in covered]
            wanted += min((funnel.wanted for funnel in funnels), default=0)
            for funnel, (_, constraint) in zip(funnels, covered, strict=True):
                for spot in spots(funnel.left):
                    devices[spot.device_id] = spot
                    values[spot.device_id] = constraint.known_values_at(spot.slice, spot.bit) or frozenset()
        wants_equal = stated.match_attribute is not None
        is_shared = any(spot.device.allow_multiple_allocations for spot in devices.values())
        return Reason(
            cause=ReasonCause.CONSTRAINT,
            subject=" or ".join(attributes),
            claim=requests[0].claim,
            request=requests[0].name if len(requests) == 1 else None,
            asked="agree" if wants_equal else "differ",
            wanted=wanted,
            # One that is shared can serve several requests, so that counting devices says nothing.
            left=0 if is_shared else _most_alike(values.values()) if wants_equal else _most_different(values.values()),
            tells_claim=self._has_several_claims,
        )


def reason_of_error(demand: Demand, fatal: Fatal) -> Reason:
    names_class = fatal.device_class and fatal.cause is not FatalCause.CLASS_MISSING
    about_class = f"class {fatal.device_class}: " if names_class else ""
    claim = demand.claims[fatal.claim] if fatal.claim is not None else None
    return Reason(
        cause=ReasonCause.ERROR,
        subject=f"{about_class}{fatal.message}",
        claim=fatal.claim,
        request=fatal.request,
        tells_claim=claim is not None and len(demand.claims) > 1,
        tells_request=claim is not None and fatal.request is not None and _is_one_of_several(claim),
        example=str(fatal.device or ""),
    )


def _is_one_of_several(claim: ClaimDemand) -> bool:
    """Whether a request of the claim must be named to know which one is meant."""
    return sum(len(request.alternatives) for request in claim.requests) > 1


def _probe(claim: ClaimDemand) -> ResourceClaim:
    """A claim that requests the same and has no name, to put parts of it to the allocator."""
    return ResourceClaim(spec=ResourceClaimSpec(devices=claim.devices))


def _most_alike(values: Iterable[Values]) -> int:
    counts = Counter(value for each in values for value in each)
    return max(counts.values(), default=0)


def _most_different(values: Iterable[Values]) -> int:
    return len(set(values))


def _smallest_misfit(parts: Sequence[PartT], fits: Callable[[Sequence[PartT]], bool]) -> Sequence[PartT]:
    """Parts that do not fit together: two if that can be, else the first ones up to the one that is too much."""
    end = next((end for end in range(2, len(parts)) if not fits(parts[:end])), len(parts))
    for other in parts[: end - 1]:
        if not fits((other, parts[end - 1])):
            return other, parts[end - 1]
    return parts[:end]
