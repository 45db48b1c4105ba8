"""Allocations: the devices that the claims of a pod get on a node, or why they get none.

The order of results and of configuration is compared, share IDs are not. Of an error, its presence and the claim,
request, class and device that it names are compared. Where Kubernetes gave up, any definite answer agrees; independent
tests check that it is correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from dralloc.conformance.vector_family import BadVectors, VectorOptions, VectorVerdict
from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, Fatal, Impossible, Outcome
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.allocator.stamp import stamp
from dralloc.devices.identity import ClaimId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.codec import DecodeError, decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from dralloc.kube.wire import Wire
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.features import GATES, FeatureGates

# The placeholder of every share ID in a recorded answer.
ANY_SHARE_ID: Final = "*"


class _Stated(Wire):
    name: str = ""
    features: tuple[str, ...] = ()
    node: Node = field(default_factory=Node)
    classes: tuple[DeviceClass, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    allocated: tuple[ResourceClaim, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()


class _Recorded(Struct):
    """The recorded answer of a line; null is an answer, too."""

    expect: dict[str, Any]


class AllocationFamily:
    def run(self, lines: Iterable[bytes], _options: VectorOptions) -> Iterator[VectorVerdict]:
        for number, text in enumerate(lines, start=1):
            try:
                name, problem, claims = read_line(text)
                expected = msgspec.json.decode(text, type=_Recorded).expect
            except (*UNREADABLE, DecodeError, ValueError) as error:
                raise BadVectors(f"line {number}: {error}") from None
            yield VectorVerdict(name, tuple(differences(expected, allocate(problem), claims)))


def read_line(text: bytes) -> tuple[str, AllocationProblem, tuple[ResourceClaim, ...]]:
    """The name of a line, the problem that it states, and the problem's claims."""
    stated = decode(text, _Stated)
    metadata, status = stated.node.metadata, stated.node.status
    node = NodeFacts(metadata.name, metadata.labels, frozenset(status.declared_features))
    classes = {found.metadata.name or "": found for found in stated.classes}
    demand = compile_demand(stated.claims, classes, Features.of(_gates(stated.features)))
    snapshot = Snapshot.of(slices=stated.slices, claims=stated.allocated, nodes=[node])
    return stated.name, AllocationProblem(demand, node, snapshot), stated.claims


def _gates(names: tuple[str, ...]) -> FeatureGates:
    if unknown := sorted(set(names) - set(GATES)):
        raise ValueError(f"there is no feature gate {', '.join(unknown)}")
    return FeatureGates.only(names)


def differences(expected: Mapping[str, Any], outcome: Outcome, claims: Sequence[ResourceClaim]) -> Iterator[str]:
    claim_ids = tuple(map(ClaimId.of, claims))
    match outcome:
        case BudgetExhausted():
            yield "no answer within the budget"
        case _ if expected.get("timedOut"):
            if isinstance(outcome, Fatal):
                yield f"expected devices or none, got the error {outcome.text(claim_ids)}"
        case Fatal():
            yield from _differences_of_errors(expected, outcome, claim_ids)
        case Impossible():
            is_none = "results" in expected and expected["results"] is None
            if not (expected.get("onNodeOnly") if outcome.is_node_fault else is_none):
                yield f"expected {_shown(expected)}, got no fit"
        case Allocated():
            stamped = [stamp(allocation, lambda: ANY_SHARE_ID) for allocation in outcome.claims]
            results = msgspec.json.decode(encode(stamped))
            if results != expected.get("results"):
                yield f"expected {_shown(expected)}, got {msgspec.json.encode(results).decode()}"


_NAMED: Final = {
    "claim": re.compile(r"\bclaim (\S+?)[,:]"),
    "request": re.compile(r"\brequest (\S+?):"),
    "class": re.compile(r"\bclass (?!name\b)(\S+?)(?:[:\s]|$)"),
    "device": re.compile(r"\bdevice (\S+/\S+/\S+?)(?:[:\s]|$)"),
}


def _differences_of_errors(expected: Mapping[str, Any], fatal: Fatal, claim_ids: Sequence[ClaimId]) -> Iterator[str]:
    text, ours = expected.get("error"), fatal.text(claim_ids)
    if text is None or expected.get("onNodeOnly"):
        yield f"expected {_shown(expected)}, got the error {ours}"
        return
    named = {
        "claim": str(claim_ids[fatal.claim]) if fatal.claim is not None else None,
        # Kubernetes names an alternative without the request that it belongs to.
        "request": (fatal.request.sub or fatal.request.main) if fatal.request is not None else "",
        "class": fatal.device_class,
        "device": str(fatal.device),
    }
    for what, pattern in _NAMED.items():
        found = pattern.search(text)
        if found is not None and found[1] != named[what]:
            yield f"expected the error {text!r}, got {ours}: the {what} differs"


def _shown(expected: Mapping[str, Any]) -> str:
    return msgspec.json.encode(expected.get("error") or expected.get("results")).decode()


FAMILY: Final = AllocationFamily()
