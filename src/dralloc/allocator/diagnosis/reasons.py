"""One reason, in one line: why claims do not fit on a node; and the reasons of many nodes, grouped.

A reason is a value that nodes can have in common. What differs from node to node (how much is free at most, how many
devices are left) is merged when reasons are grouped; a device that shows it (`example`) is named where there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from dralloc.api.request_name import RequestName
from dralloc.devices.identity import ClaimId
from dralloc.primitives.quantity import Quantity

GROUPS_SHOWN_MAX: Final = 8
NAMES_SHOWN_MAX: Final = 3
EXPRESSION_SHOWN_MAX: Final = 100


class Cause(Enum):
    """What a reason is about, from what a device is to what becomes of several together."""

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
    IN_USE = "InUse"
    CAPACITY = "CapacityShort"
    COUNTERS = "CountersShort"
    # Devices in use draw more than there is, which blocks every device that draws from the pool's counters.
    OVERDRAWN = "CountersOverdrawn"
    PARTITIONS_OFF = "PartitionableDevicesOff"
    TAINT = "Taint"
    NODE_OPERATIONS = "NodeOperations"
    NO_ATTRIBUTE = "NoSuchAttribute"
    CONSTRAINT = "Constraint"
    # More devices than one claim can hold.
    LIMIT = "TooManyDevices"
    # Each part fits, but not all of them together.
    TOGETHER = "NotTogether"
    # The claims cannot be served anywhere until what is at fault is changed.
    ERROR = "Error"
    # Neither found nor refuted within the steps that were allowed.
    UNDECIDED = "Undecided"
    # It is not about devices: the node itself does not do.
    NODE = "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    cause: Cause
    # What it is about: a class, an expression, a capacity, a counter, a taint, an attribute; or the whole sentence.
    subject: str = ""
    # The claim's index in the demand, or its name once it is `named`.
    claim: int | ClaimId | None = None
    request: RequestName | None = None
    # Whether the sentence must say which claim and which request is meant, because there are several.
    tells_claim: bool = False
    tells_request: bool = False
    # The request is the alternative that comes nearest, and none of the others fits either.
    is_nearest: bool = False
    # The claims that do not fit together.
    claims: tuple[int | ClaimId, ...] = ()
    # What is asked for, and what is taken for it, where that is not the same.
    asked: str = ""
    takes: str = ""
    # How many devices are asked for; where all are, as many as match.
    wanted: int = 1
    takes_all: bool = False

    # What differs from node to node: the most that is there; how many devices fit; how many are lost to this, of how many
    # that match and are lost to something.
    most: Quantity | None = None
    left: int = 0
    lost: int | None = 0
    lost_at_all: int = 0
    # A device or a pool that shows it, and what other devices are lost to.
    example: str = ""
    also: str = ""

    @property
    def key(self) -> Hashable:
        """Equal for reasons that are told as one."""
        return replace(
            self,
            most=None,
            left=0,
            lost=0,
            lost_at_all=0,
            example="",
            also="",
            wanted=0 if self.takes_all else self.wanted,
        )

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
        return _line(replace(self, example="", also=""))

    @property
    def line(self) -> str:
        """In one line, with a device that shows it, and what else there is to it."""
        return _line(self) + (f"; besides, {self.also}" if self.also else "")


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes with the same story. `example` is the one of them that comes nearest."""

    reason: Reason
    nodes: tuple[str, ...]
    example: str

    def named(self, claims: Sequence[ClaimId]) -> Group:
        return Group(self.reason.named(claims), self.nodes, self.example)

    def __str__(self) -> str:
        return f"{counted(len(self.nodes), 'node')}: {self.reason}"


def grouped(reasons: Iterable[tuple[str, Reason]]) -> tuple[Group, ...]:
    """Nodes with their reasons, put together where these are told as one; the group that comes nearest first."""
    members: dict[Hashable, list[tuple[str, Reason]]] = {}
    for node, reason in reasons:
        members.setdefault(reason.key, []).append((node, reason))
    groups = [_group(entries) for entries in members.values()]
    return tuple(sorted(groups, key=lambda group: (distance(group.reason), -len(group.nodes), str(group.reason))))


def _group(entries: Sequence[tuple[str, Reason]]) -> Group:
    """The group of these nodes, whose reason has the best of what differs between them."""
    nearest, best = min(entries, key=lambda entry: distance(entry[1]))
    losses = {(reason.lost, reason.lost_at_all) for _, reason in entries}
    merged = replace(
        best,
        left=max(reason.left for _, reason in entries),
        lost=best.lost if len(losses) == 1 else None,
        wanted=max(reason.wanted for _, reason in entries),
    )
    return Group(merged, tuple(node for node, _ in entries), nearest)


def distance(reason: Reason) -> tuple[int, int, float, int]:
    """How far it is to a fit, for comparison: what has to change, how many devices lack, how much of one, what of it."""
    return _remoteness(reason), reason.wanted - reason.left, _shortage(reason), -_CAUSES.index(reason.cause)


def _remoteness(reason: Reason) -> int:
    match reason.cause:
        case Cause.ERROR | Cause.UNDECIDED:
            # That is why all others do not matter.
            return 0
        case Cause.TOGETHER | Cause.CONSTRAINT:
            return 1
        case Cause.NO_DEVICES | Cause.POOL | Cause.BINDING_CONDITIONS | Cause.CLASS_SELECTOR if not reason.left:
            # There is nothing of the kind.
            return 3
        case Cause.NODE:
            return 4
        case Cause.LIMIT:
            return 5
        case _:
            return 2


def _shortage(reason: Reason) -> float:
    """The part that lacks of what is asked of one device: 1 where it cannot be had at all."""
    if reason.most is None:
        return 1.0
    needed = Quantity.parse(reason.takes or reason.asked or 0)
    return 1 - reason.most.nanos / needed.nanos if reason.most < needed else 0.0


def availability(groups: Sequence[Group], *, total: int, available: int = 0) -> str:
    """The reasons of all nodes in one line, as a pod's condition has it."""
    told = [str(group) for group in groups[:GROUPS_SHOWN_MAX]]
    untold = sum(len(group.nodes) for group in groups[GROUPS_SHOWN_MAX:])
    if untold:
        told.append(f"{counted(untold, 'node')}: other reasons")
    return f"{available}/{total} nodes are available" + (f": {'; '.join(told)}" if told else "")


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def first_few(names: Iterable[str], noun: str) -> str:
    """The first few names, and how many more there are."""
    known = list(names)
    shown = ", ".join(known[:NAMES_SHOWN_MAX])
    more = len(known) - NAMES_SHOWN_MAX
    return f"{shown} and {counted(more, f'more {noun}')}" if more > 0 else shown


def shortened(expression: str) -> str:
    """An expression as part of a sentence."""
    text = " ".join(expression.split())
    return text if len(text) <= EXPRESSION_SHOWN_MAX else f"{text[: EXPRESSION_SHOWN_MAX - 1]}…"


# --- Texts --------------------------------------------------------------------------------------------------------------


def _line(reason: Reason) -> str:
    text = _TEXTS[reason.cause](reason)
    if reason.cause not in _ABOUT_ALL:
        text = _how_many(reason) + text
    where = _where(reason)
    return f"{where}: {text}" if where else text


def _where(reason: Reason) -> str:
    """Says which claim and request is meant, as far as there is a choice."""
    named = [f"claim {reason.claim}"] if reason.tells_claim else []
    if reason.is_nearest and reason.request is not None:
        named.append(f"no alternative of request {reason.request.main} fits, nearest {reason.request}")
    elif reason.tells_request:
        named.append(f"request {reason.request}")
    return ", ".join(named)


def text_of_loss(reason: Reason) -> str:
    """Why some of the devices are lost, of whatever becomes of the others."""
    said = _LOSSES.get(reason.cause)
    return said.format(shortened(reason.subject)) if said else _TEXTS[reason.cause](reason)


def _how_many(reason: Reason) -> str:
    if reason.takes_all and reason.left:
        return f"not all of {counted(reason.wanted, 'device')}: "
    if reason.left:
        return f"only {reason.left} of {counted(reason.wanted, 'device')}: "
    return ""


def _negated(reason: Reason, whole: str, rest: str) -> str:
    """Of all devices, or of those besides the ones that fit."""
    return rest if reason.left else whole


def _no_devices(reason: Reason) -> str:
    if reason.lost == 0:
        return "no devices"
    there_are = "too few devices" if reason.lost is None else counted(reason.lost, "device")
    return f"{there_are}, {reason.wanted} asked"


def _in_use(reason: Reason) -> str:
    if reason.lost is None:
        return "the others are in use" if reason.left else "devices in use"
    if reason.left:
        return f"{reason.lost} in use"
    if reason.lost < reason.lost_at_all:
        return f"{reason.lost} of {reason.lost_at_all} devices in use"
    return "the only device is in use" if reason.lost == 1 else f"all {reason.lost} devices in use"


def _amounts(reason: Reason, most: str) -> str:
    told = []
    if reason.asked:
        told.append(f"asked {reason.asked}")
    if reason.takes:
        told.append(f"which takes {reason.takes}" if reason.asked else f"takes {reason.takes}")
    if reason.most is not None:
        told.append(f"{most} {reason.most}{f' on {reason.example}' if reason.example else ''}")
    return f" ({', '.join(told)})" if told else ""


def _constraint(reason: Reason) -> str:
    if reason.asked == "differ" and reason.left:
        return f"only {counted(reason.left, 'different value')} of {reason.subject} for {reason.wanted} devices"
    if reason.left > 1:
        return f"only {reason.left} of {reason.wanted} devices agree in {reason.subject}"
    return f"no {reason.wanted} devices {reason.asked} in {reason.subject}"


def _together(reason: Reason) -> str:
    subject = f"claims {listed(map(str, reason.claims))}" if reason.claims else reason.subject
    return f"{subject} fit alone, not together"


_CAUSES: Final = tuple(Cause)

# Where the numbers of devices are part of the sentence, or there are none.
_ABOUT_ALL: Final = frozenset(
    {Cause.NO_DEVICES, Cause.CONSTRAINT, Cause.LIMIT, Cause.TOGETHER, Cause.ERROR, Cause.UNDECIDED, Cause.NODE}
)

_TEXTS: Final[Mapping[Cause, Callable[[Reason], str]]] = {
    Cause.NO_DEVICES: _no_devices,
    Cause.POOL: lambda reason: f"pool {f'{reason.example} ' if reason.example else ''}{reason.subject}",
    Cause.BINDING_CONDITIONS: lambda reason: _negated(
        reason,
        "all devices have binding conditions, which are off",
        "the others have binding conditions, which are off",
    ),
    Cause.CLASS_SELECTOR: lambda reason: _negated(
        reason, f"no device of class {reason.subject}", f"no more devices of class {reason.subject}"
    ),
    Cause.CLAIM_SELECTOR: lambda reason: _negated(
        reason, f"no device matches {shortened(reason.subject)}", f"no more devices match {shortened(reason.subject)}"
    ),
    Cause.FAULT: lambda reason: f"cannot be judged: {reason.subject}",
    Cause.NO_CAPACITY: lambda reason: _negated(
        reason, f"no device has the capacity {reason.subject}", f"the others have no capacity {reason.subject}"
    ),
    Cause.SIZE: lambda reason: f"{reason.subject} too small{_amounts(reason, 'largest')}",
    Cause.POLICY: lambda reason: f"{reason.subject} is not given out in this amount{_amounts(reason, 'largest')}",
    Cause.IN_USE: _in_use,
    Cause.CAPACITY: lambda reason: f"{reason.subject} short{_amounts(reason, 'most free')}",
    Cause.COUNTERS: lambda reason: f"counter {reason.subject} short{_amounts(reason, 'most left')}",
    Cause.OVERDRAWN: lambda reason: f"counter {reason.subject} is overdrawn by devices in use",
    Cause.PARTITIONS_OFF: lambda _: "devices draw from counters, and the feature DRAPartitionableDevices is off",
    Cause.TAINT: lambda reason: f"untolerated taint {reason.subject}",
    Cause.NODE_OPERATIONS: lambda _: "devices skip node operations, which the node does not know",
    Cause.NO_ATTRIBUTE: lambda reason: _negated(
        reason,
        f"no device has the attribute {reason.subject} that a constraint asks for",
        f"the others lack the attribute {reason.subject} that a constraint asks for",
    ),
    Cause.CONSTRAINT: _constraint,
    Cause.LIMIT: lambda reason: f"asks for {reason.asked} devices, more than a claim can hold",
    Cause.TOGETHER: _together,
    Cause.ERROR: lambda reason: f"{reason.subject}{f' (device {reason.example})' if reason.example else ''}",
    Cause.UNDECIDED: lambda reason: reason.subject,
    Cause.NODE: lambda reason: reason.subject,
}

_LOSSES: Final[Mapping[Cause, str]] = {
    Cause.BINDING_CONDITIONS: "have binding conditions, and the feature for them is off",
    Cause.CLASS_SELECTOR: "not of class {}",
    Cause.CLAIM_SELECTOR: "do not match {}",
    Cause.NO_CAPACITY: "have no capacity {}",
    Cause.IN_USE: "in use",
    Cause.PARTITIONS_OFF: "draw from counters, and the feature DRAPartitionableDevices is off",
    Cause.NODE_OPERATIONS: "skip node operations, which the node does not know",
    Cause.NO_ATTRIBUTE: "lack the attribute {}, which a constraint asks for",
}
