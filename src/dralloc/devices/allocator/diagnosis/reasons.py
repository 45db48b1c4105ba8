"""Why claims do not fit on a node, in one line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import chain
from typing import Final

from dralloc.devices.allocator.outcome import RESULTS_MAX
from dralloc.devices.identity import ClaimId
from dralloc.kube.request_name import RequestName
from dralloc.primitives.phrases import counted, listed, shortened
from dralloc.primitives.quantity import Quantity


class ReasonCause(Enum):
    """What a reason is about, in the order from a single device to several requests together."""

    NO_DEVICES = "NoDevices"
    POOL = "PoolNotReady"
    BINDING_CONDITIONS = "BindingConditionsOff"
    CLASS_SELECTOR = "ClassSelector"
    CLAIM_SELECTOR = "ClaimSelector"
    # A selector, or the calculation of an amount, fails on devices.
    FAULT = "SelectorFails"
    NO_CAPACITY = "NoSuchCapacity"
    SIZE = "TooSmall"
    POLICY = "RequestPolicy"
    CAPACITY_LIMIT = "LimitTooLarge"
    FEATURE_OFF = "FeatureOff"
    IN_USE = "InUse"
    # Devices are allocated more or less often than the request wants.
    ALLOCATIONS = "AllocationsOutOfRange"
    CAPACITY = "CapacityShort"
    # What all devices have together is too little.
    TOTAL = "TotalShort"
    # Strategy ConsumedOrNever: no share consumes the capacity while the first one lives; or some do and some do not.
    NOT_CONSUMABLE = "CapacityNotConsumable"
    DIVIDED = "CapacityDivided"
    COUNTERS = "CountersShort"
    # Allocated devices consume more than the pool has, which blocks every device that consumes its counters.
    OVERDRAWN = "CountersOverdrawn"
    PARTITIONS_OFF = "PartitionableDevicesOff"
    TAINT = "Taint"
    NODE_OPERATIONS = "NodeOperations"
    NO_ATTRIBUTE = "NoSuchAttribute"
    CONSTRAINT = "Constraint"
    # More devices than a claim can have.
    LIMIT = "TooManyDevices"
    # Each part fits, but not all of them together.
    TOGETHER = "NotTogether"
    # The claims fit nowhere until the error is corrected.
    ERROR = "Error"
    # The search ended at its step limit without an answer.
    UNDECIDED = "Undecided"
    # The node itself cannot take the pod, whatever devices it has.
    NODE = "Node"


@dataclass(frozen=True, kw_only=True)
class Reason:
    cause: ReasonCause
    # A class, an expression, a capacity, a counter, a taint or an attribute; or the whole sentence.
    subject: str = ""
    # The claim's index in the demand, or its name once it is `named`.
    claim: int | ClaimId | None = None
    request: RequestName | None = None
    # True if the sentence must name the claim or the request, because there are several.
    tells_claim: bool = False
    tells_request: bool = False
    # No alternative fits; the request names the nearest one.
    is_nearest: bool = False
    # The claims that do not fit together.
    claims: tuple[int | ClaimId, ...] = ()
    # The requested amount, and the amount that it is rounded up to, if that differs.
    asked: str = ""
    takes: str = ""
    # The number of requested devices; for mode All, the number of matching ones.
    wanted: int = 1
    takes_all: bool = False

    # What differs between nodes: the largest available amount; how many devices fit; how many are lost for this reason, of
    # how many that match and are lost for any reason.
    most: Quantity | None = None
    left: int = 0
    lost: int | None = 0
    lost_at_all: int = 0
    # A device or a pool as an example, and why other devices are lost.
    example: str = ""
    also: str = ""

    @cached_property
    def key(self) -> str:
        """Equal for reasons that belong to one group."""
        wanted = 0 if self.takes_all else self.wanted
        return repr(replace(self, most=None, left=0, lost=0, lost_at_all=0, example="", also="", wanted=wanted))

    @cached_property
    def distance(self) -> tuple[int, int, float, int]:
        """How far it is to a fit, for comparison: what has to change, how many devices lack, how much of one, what of it."""
        return _remoteness(self), self.wanted - self.left, _shortage(self), -_CAUSES.index(self.cause)

    def named(self, claims: Sequence[ClaimId]) -> Reason:
        """The same with the names of claims in place of their indices."""
        if self.claim is None and not self.claims:
            return self
        return replace(
            self,
            claim=claims[self.claim] if isinstance(self.claim, int) else self.claim,
            claims=tuple(claims[claim] if isinstance(claim, int) else claim for claim in self.claims),
        )

    def __str__(self) -> str:
        """In one line, without examples."""
        return _line(replace(self, example="", also="") if self.example or self.also else self)

    @property
    def line(self) -> str:
        """In one line, with an example and the reasons of other devices."""
        return _line(self) + (f"; also {self.also}" if self.also else "")


def _remoteness(reason: Reason) -> int:
    match reason.cause:
        case ReasonCause.ERROR | ReasonCause.UNDECIDED:
            # That is why all others do not matter.
            return 0
        case ReasonCause.TOGETHER | ReasonCause.CONSTRAINT:
            return 1
        case (
            ReasonCause.NO_DEVICES | ReasonCause.POOL | ReasonCause.BINDING_CONDITIONS | ReasonCause.CLASS_SELECTOR
        ) if not reason.left:
            # There is nothing of the kind.
            return 3
        case ReasonCause.NODE:
            return 4
        case ReasonCause.LIMIT:
            return 5
        case _:
            return 2


def _shortage(reason: Reason) -> float:
    """The part that lacks of what is asked of one device: 1 where it cannot be had at all."""
    if reason.most is None:
        return 1.0
    needed = Quantity.parse(reason.takes or reason.asked or 0)
    if reason.most >= needed:
        return 0.0
    # Of an over-committed device less than nothing is left, so even a request for nothing can be short.
    return 1 - reason.most.nanos / needed.nanos if needed.nanos else 1.0


# --- Texts --------------------------------------------------------------------------------------------------------------


def _line(reason: Reason) -> str:
    text = _TEXTS[reason.cause](reason)
    if reason.cause not in _ABOUT_ALL:
        text = _how_many(reason) + text
    where = _where(reason)
    return f"{where}: {text}" if where else text


def _where(reason: Reason) -> str:
    """The claim and request, where there are several."""
    named = [f"claim {reason.claim}"] if reason.tells_claim else []
    if reason.is_nearest and reason.request is not None:
        named.append(f"no alternative of request {reason.request.main} fits, nearest {reason.request}")
    elif reason.tells_request:
        named.append(f"request {reason.request}")
    return ", ".join(named)


def text_of_loss(reason: Reason) -> str:
    """Why some of the devices are lost, regardless of the others."""
    said = _LOSSES.get(reason.cause)
    return said.format(shortened(reason.subject)) if said else _TEXTS[reason.cause](reason)


def _how_many(reason: Reason) -> str:
    if reason.takes_all and reason.left:
        return f"not all {counted(reason.wanted, 'device')}: "
    if reason.left:
        return f"only {reason.left} of {counted(reason.wanted, 'device')}: "
    return ""


def _negated(reason: Reason, whole: str, rest: str) -> str:
    """The text about all devices, or about those besides the ones that fit."""
    return rest if reason.left else whole


def _no_devices(reason: Reason) -> str:
    if reason.lost == 0:
        return "no devices"
    there_are = "too few devices" if reason.lost is None else counted(reason.lost, "device")
    return f"{there_are}, {reason.wanted} requested"


def _in_use(reason: Reason) -> str:
    if reason.lost is None:
        return "the others are in use" if reason.left else "devices are in use"
    if reason.left:
        return f"{reason.lost} in use"
    if reason.lost < reason.lost_at_all:
        return f"{reason.lost} of {reason.lost_at_all} devices are in use"
    return "the only device is in use" if reason.lost == 1 else f"all {reason.lost} devices are in use"


def _insufficient(reason: Reason, what: str, at_most: str) -> str:
    """`insufficient memory: requested 30Gi, available 23Gi`. Without a request, the device's own need or default counts."""
    if reason.asked:
        needed = f"requested {reason.asked}{f' (rounded up to {reason.takes})' if reason.takes else ''}"
    else:
        needed = f"needs {reason.takes}" if reason.takes else ""
    example = f" ({reason.example})" if reason.example else ""
    most = f"{at_most} {reason.most}{example}" if reason.most is not None else ""
    return ": ".join(filter(None, (f"insufficient {what}", ", ".join(filter(None, (needed, most))))))


def _policy(reason: Reason) -> str:
    asked = f"requested {reason.asked}" if reason.asked else "the default amount is not allowed"
    example = f" ({reason.example})" if reason.example else ""
    most = (
        f"at most {reason.most} per claim{example}"
        if reason.most is not None
        else "the device's policy has no such amount"
    )
    return f"{reason.subject}: {asked}; {most}"


def _constraint(reason: Reason) -> str:
    if reason.asked == "differ" and reason.left:
        return f"only {counted(reason.left, 'different value')} of {reason.subject} for {reason.wanted} devices"
    if reason.left > 1:
        return f"only {reason.left} of {reason.wanted} devices have the same {reason.subject}"
    values = "different values of" if reason.asked == "differ" else "the same"
    if reason.wanted == 1:
        # As many devices as are needed to have a capacity together.
        return f"no devices that have enough together have {values} {reason.subject}"
    return f"no {reason.wanted} devices have {values} {reason.subject}"


def _together(reason: Reason) -> str:
    subject = f"claims {listed(map(str, reason.claims))}" if reason.claims else reason.subject
    return f"{subject} fit separately, but not together"


_CAUSES: Final = tuple(ReasonCause)
_BINDING_CONDITIONS_OFF: Final = "the feature DRADeviceBindingConditions is off"
_PARTITIONS_OFF: Final = "the feature DRAPartitionableDevices is off"

# Causes whose text has the number of devices, or needs none.
_ABOUT_ALL: Final = frozenset(
    {
        ReasonCause.NO_DEVICES,
        ReasonCause.CONSTRAINT,
        ReasonCause.TOTAL,
        ReasonCause.LIMIT,
        ReasonCause.TOGETHER,
        ReasonCause.ERROR,
        ReasonCause.UNDECIDED,
        ReasonCause.NODE,
    }
)

_TEXTS: Final[Mapping[ReasonCause, Callable[[Reason], str]]] = {
    ReasonCause.NO_DEVICES: _no_devices,
    ReasonCause.POOL: lambda reason: f"pool {f'{reason.example} ' if reason.example else ''}{reason.subject}",
    ReasonCause.BINDING_CONDITIONS: lambda reason: _negated(
        reason,
        f"all devices have binding conditions, but {_BINDING_CONDITIONS_OFF}",
        f"the others have binding conditions, but {_BINDING_CONDITIONS_OFF}",
    ),
    ReasonCause.CLASS_SELECTOR: lambda reason: _negated(
        reason, f"no device of class {reason.subject}", f"no more devices of class {reason.subject}"
    ),
    ReasonCause.CLAIM_SELECTOR: lambda reason: _negated(
        reason, f"no device matches {shortened(reason.subject)}", f"no more devices match {shortened(reason.subject)}"
    ),
    ReasonCause.FAULT: lambda reason: f"evaluation fails: {reason.subject}",
    ReasonCause.NO_CAPACITY: lambda reason: _negated(
        reason, f"no device has the capacity {reason.subject}", f"the others have no capacity {reason.subject}"
    ),
    ReasonCause.SIZE: lambda reason: _insufficient(reason, reason.subject, "the largest device has"),
    ReasonCause.POLICY: _policy,
    ReasonCause.CAPACITY_LIMIT: lambda reason: (
        f"insufficient {reason.subject}: limit {reason.asked}, the largest device has {reason.most}"
    ),
    ReasonCause.FEATURE_OFF: lambda reason: f"devices need the feature {reason.subject}, which is off",
    ReasonCause.IN_USE: _in_use,
    ReasonCause.NOT_CONSUMABLE: lambda reason: (
        f"{reason.subject} is not consumable while shares without a request for it are in use"
    ),
    ReasonCause.DIVIDED: lambda reason: (
        f"some shares consume {reason.subject} and others do not; no more shares until one kind is released"
    ),
    ReasonCause.CAPACITY: lambda reason: _insufficient(reason, reason.subject, "available"),
    ReasonCause.ALLOCATIONS: lambda reason: _negated(
        reason, f"no device has {reason.subject} allocations", f"the others do not have {reason.subject} allocations"
    ),
    ReasonCause.TOTAL: lambda reason: _insufficient(
        reason, reason.subject, f"{counted(reason.wanted, 'device')} can give"
    ),
    ReasonCause.COUNTERS: lambda reason: _insufficient(reason, f"counter {reason.subject}", "available"),
    ReasonCause.OVERDRAWN: lambda reason: f"counter {reason.subject} is overcommitted by allocated devices",
    ReasonCause.PARTITIONS_OFF: lambda _: f"devices consume counters, but {_PARTITIONS_OFF}",
    ReasonCause.TAINT: lambda reason: f"untolerated taint {reason.subject}",
    ReasonCause.NODE_OPERATIONS: lambda _: "devices skip node operations, which the node does not support",
    ReasonCause.NO_ATTRIBUTE: lambda reason: _negated(
        reason,
        f"no device has the attribute {reason.subject} that a constraint needs",
        f"the others lack the attribute {reason.subject} that a constraint needs",
    ),
    ReasonCause.CONSTRAINT: _constraint,
    ReasonCause.LIMIT: lambda reason: f"requests {reason.asked} devices; a claim can have at most {RESULTS_MAX}",
    ReasonCause.TOGETHER: _together,
    ReasonCause.ERROR: lambda reason: f"{reason.subject}{f' (device {reason.example})' if reason.example else ''}",
    ReasonCause.UNDECIDED: lambda reason: reason.subject,
    ReasonCause.NODE: lambda reason: reason.subject,
}

_LOSSES: Final[Mapping[ReasonCause, str]] = {
    ReasonCause.BINDING_CONDITIONS: f"have binding conditions, but {_BINDING_CONDITIONS_OFF}",
    ReasonCause.CLASS_SELECTOR: "not of class {}",
    ReasonCause.CLAIM_SELECTOR: "do not match {}",
    ReasonCause.NO_CAPACITY: "have no capacity {}",
    ReasonCause.FEATURE_OFF: "need the feature {}, which is off",
    ReasonCause.IN_USE: "in use",
    ReasonCause.ALLOCATIONS: "do not have {} allocations",
    ReasonCause.PARTITIONS_OFF: f"consume counters, but {_PARTITIONS_OFF}",
    ReasonCause.NODE_OPERATIONS: "skip node operations, which the node does not support",
    ReasonCause.NO_ATTRIBUTE: "lack the attribute {}, which a constraint needs",
}


# --- Reason groups --------------------------------------------------------------------------------------------------
# The reasons of many nodes, in groups of nodes that are told as one.
#
# What differs between the nodes of a group (how much is available at most, how many devices are left) is merged.


GROUPS_SHOWN_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Nodes with the same reason, in `parts`. `example` is the node that is nearest to a fit."""

    reason: Reason
    parts: tuple[Collection[str], ...]
    example: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(self.parts))

    @property
    def size(self) -> int:
        """The number of the nodes."""
        return sum(map(len, self.parts))

    def named(self, claims: Sequence[ClaimId]) -> ReasonGroup:
        return ReasonGroup(self.reason.named(claims), self.parts, self.example)

    def __str__(self) -> str:
        return f"{counted(self.size, 'node')}: {self.reason}"


def grouped(reasons: Iterable[tuple[str, Reason]]) -> tuple[ReasonGroup, ...]:
    """Nodes with their reasons, put together where these are told as one; the group that comes nearest first."""
    # Many nodes share one object.
    members: dict[int, tuple[Reason, list[str]]] = {}
    for node, reason in reasons:
        members.setdefault(id(reason), (reason, []))[1].append(node)
    return groups_of(members.values())


def groups_of(members: Iterable[tuple[Reason, Collection[str]]]) -> tuple[ReasonGroup, ...]:
    """The same for reasons with their nodes, of which each has at least one."""
    alike: dict[str, list[tuple[Reason, Collection[str]]]] = {}
    for entry in members:
        alike.setdefault(entry[0].key, []).append(entry)
    groups = [_group(entries) for entries in alike.values()]
    return tuple(sorted(groups, key=lambda group: (group.reason.distance, -group.size, str(group.reason))))


def _group(entries: Sequence[tuple[Reason, Collection[str]]]) -> ReasonGroup:
    """The group of these nodes, whose reason has the best of what differs between them."""
    if len(entries) == 1:
        [(only, nodes)] = entries
        return ReasonGroup(only, (nodes,), next(iter(nodes)))
    best, nearest = min(entries, key=lambda entry: entry[0].distance)
    losses = {(reason.lost, reason.lost_at_all) for reason, _ in entries}
    merged = replace(
        best,
        left=max(reason.left for reason, _ in entries),
        lost=best.lost if len(losses) == 1 else None,
        wanted=max(reason.wanted for reason, _ in entries),
    )
    return ReasonGroup(merged, tuple(nodes for _, nodes in entries), next(iter(nearest)))


def availability(groups: Sequence[ReasonGroup], *, total: int, available: int = 0) -> str:
    """The reasons of all nodes in one line, as a pod's condition has it."""
    told = [str(group) for group in groups[:GROUPS_SHOWN_MAX]]
    untold = sum(group.size for group in groups[GROUPS_SHOWN_MAX:])
    if untold:
        told.append(f"{counted(untold, 'node')}: other reasons")
    return f"{available}/{total} nodes are available" + (f": {'; '.join(told)}" if told else "")
