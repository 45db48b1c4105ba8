"""What a cluster promises whatever dies, checked from outside, with plain documents and none of the project's own code.

- `Register`: no acknowledged write is lost.
- `WatchJournal`: a watch that is resumed has every change once and in order.
- `DeviceLedger`: no device is given to two claims, no capacity is exceeded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Document = Mapping[str, Any]
VALUE = "campaign/value"


class Violation(AssertionError):
    """The cluster broke a promise."""


def revision_of(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])


def key_of(document: Document) -> str:
    return f"{document['metadata'].get('namespace', '')}/{document['metadata']['name']}"


def value_of(document: Document) -> str | None:
    value: str | None = document["metadata"].get("annotations", {}).get(VALUE)
    return value


class AcknowledgedWrite(NamedTuple):
    key: str
    value: str | None
    """None: deleted."""
    revision: int | None
    """None: the answer did not tell."""


class Register:
    """One object with one writer, so its state is known at all times: that of the last acknowledged write, or of a write
    whose outcome is unknown. Such a write may happen later, until another one is acknowledged.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.value: str | None = None
        self.revision: int | None = None
        self.unknown: list[str | None] = []
        self.log: list[AcknowledgedWrite] = []

    def acknowledge(self, value: str | None, revision: int | None) -> None:
        """A write was answered with success."""
        if revision is not None and self.log and (before := self.log[-1].revision) is not None and revision <= before:
            raise Violation(f"{self.key}: revision {revision} was given after {before}")
        self.value, self.revision, self.unknown = value, revision, []
        self.log.append(AcknowledgedWrite(self.key, value, revision))

    def look(self, found: Document | None) -> None:
        """A read was answered."""
        value = None if found is None else value_of(found)
        if value == self.value and (found is None or self.revision in (None, revision_of(found))):
            return
        if value not in self.unknown:
            wanted = " or ".join(repr(each) for each in (self.value, *self.unknown))
            raise Violation(f"{self.key} has {value!r}: an acknowledged write is lost, expected {wanted}")
        self.acknowledge(value, None if found is None else revision_of(found))


class Change(NamedTuple):
    revision: int
    type: str
    key: str
    value: str | None


@dataclass
class WatchJournal:
    """What one watch has delivered. It is resumed at its last revision after each disconnect, and never starts over."""

    revision: int
    known: dict[str, int]
    """The objects that the watch has shown, with their revisions."""
    changes: list[Change] = field(default_factory=list)

    @classmethod
    def after_list(cls, listed: Document) -> WatchJournal:
        return cls(revision_of(listed), {key_of(item): revision_of(item) for item in listed["items"]})

    def take(self, event: Document) -> Change | None:
        kind, document = event["type"], event["object"]
        if kind == "ERROR":
            raise Violation(f"a watch from revision {self.revision} was refused: {document.get('message')}")
        revision = revision_of(document)
        if kind == "BOOKMARK":
            if revision < self.revision:
                raise Violation(f"a bookmark went back from revision {self.revision} to {revision}")
            self.revision = revision
            return None
        if revision <= self.revision:
            raise Violation(f"a watch at revision {self.revision} delivered revision {revision}")
        key = key_of(document)
        if (kind == "ADDED") == (key in self.known):
            raise Violation(
                f"revision {revision}: {kind} of {key}, which was {'known' if key in self.known else 'unknown'}"
            )
        if kind == "DELETED":
            del self.known[key]
        else:
            self.known[key] = revision
        self.revision = revision
        change = Change(revision, kind, key, value_of(document))
        self.changes.append(change)
        return change


def compare_journals(journals: Sequence[WatchJournal], first: Document, last: Document) -> None:
    """All watches began at the first list and have reached the last one: they saw the same changes, which lead from one to the
    other.
    """
    expected = [change for change in journals[0].changes if change.revision <= revision_of(last)]
    for journal in journals:
        seen = [change for change in journal.changes if change.revision <= revision_of(last)]
        if seen != expected:
            raise Violation(f"two watches differ: {sorted(set(seen) ^ set(expected))[:10]}")
    known = {key_of(item): revision_of(item) for item in first["items"]}
    for change in expected:
        known[change.key] = change.revision
        if change.type == "DELETED":
            del known[change.key]
    present = {key_of(item): revision_of(item) for item in last["items"]}
    if known != present:
        raise Violation(f"watches and a list differ: {sorted(known.items() ^ present.items())[:10]}")


def check_acknowledged(registers: Iterable[Register], journal: WatchJournal, since: int) -> int:
    """Every acknowledged write was delivered by the watch; returns their number."""
    by_key: dict[str, list[Change]] = defaultdict(list)
    for change in journal.changes:
        by_key[change.key].append(change)
    count = 0
    for register in registers:
        seen = iter(by_key[register.key])
        for write in register.log:
            count += 1
            if write.revision is not None and write.revision <= since:
                continue
            for change in seen:
                if (change.type == "DELETED") == (write.value is None) and write.value in (None, change.value):
                    if write.revision not in (None, change.revision):
                        raise Violation(f"{write} was delivered with revision {change.revision}")
                    break
            else:
                raise Violation(f"{write} was acknowledged, and no watch delivered it")
    return count


class DeviceLedger:
    """Who has which device, from the allocations of claims."""

    def __init__(self, *, capacity: Mapping[str, int]) -> None:
        self._capacity = capacity
        """Amounts of the devices that can be shared, by name without the node."""
        self._claims: dict[str, list[tuple[str, str | None, int]]] = {}
        self.allocations = 0

    def take(self, kind: str, claim: Document) -> None:
        key = key_of(claim)
        before = self._claims.pop(key, [])
        allocation = claim.get("status", {}).get("allocation") or {}
        results = allocation.get("devices", {}).get("results", [])
        if kind == "DELETED" or not results:
            return
        self._claims[key] = [_use(result) for result in results]
        self.allocations += not before
        for device, share, _ in self._claims[key]:
            self._check(device, share)

    def _check(self, device: str, share: str | None) -> None:
        users = [(key, use) for key, uses in self._claims.items() for use in uses if use[0] == device]
        capacity = self._capacity.get(device.rpartition("/")[2])
        if capacity is None and len(users) > 1:
            raise Violation(f"device {device} was given to {' and '.join(key for key, _ in users)}")
        if capacity is not None and (used := sum(use[2] for _, use in users)) > capacity:
            raise Violation(
                f"{used} of {capacity} of device {device} were given to {', '.join(key for key, _ in users)}"
            )
        if share is not None and sum(use[1] == share for _, use in users) > 1:
            raise Violation(f"share {share} of device {device} was given twice")


def _use(result: Document) -> tuple[str, str | None, int]:
    device = f"{result['driver']}/{result['pool']}/{result['device']}"
    consumed = result.get("consumedCapacity") or {}
    return device, result.get("shareID"), sum(int(amount) for amount in consumed.values())
