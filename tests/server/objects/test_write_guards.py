"""The ledger of holds against a model: in whatever order changes arrive, it never counts too little, and ends up exact."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.write.write_guards import GuardLedger

pytestmark = pytest.mark.slow

KEYS = st.sampled_from(["a", "b", "c"])
AMOUNTS = st.integers(1, 5)


@dataclass
class Write:
    """A write in progress; once it is stored it has a revision, which its writer may not know yet, or never learns."""

    key: str
    amount: int
    revision: int | None = None


def amount_of(record: Record) -> int | None:
    return int(record.value) or None


class Amounts(GuardLedger[int]):
    def __init__(self) -> None:
        super().__init__(amount_of, self._add_amount)
        self.total = 0

    def _add_amount(self, amount: int, sign: int) -> None:
        self.total += sign * amount


class LedgerMachine(RuleBasedStateMachine):
    """Writes, deletions, late events, late responses to writers, and views that start over."""

    @initialize()
    def begin(self) -> None:
        self.ledger = Amounts()
        # The one that learns everything again, to replace it.
        self.next: Amounts | None = None
        self.revision = self.delivered = 1_000_000
        self.stored: dict[str, Record] = {}
        self.events: list[StoreEvent] = []
        self.writes: list[Write] = []

    @property
    def total(self) -> int:
        return self.ledger.total

    def store(self, key: str, amount: int | None) -> None:
        # Those in between are of objects in a restored backup: no revision is that of two values.
        self.revision += 2
        previous = self.stored.pop(key, None)
        record = None
        if amount is not None:
            record = self.stored[key] = Record(key=key, value=b"%d" % amount, revision=self.revision)
        self.events.append(StoreEvent(revision=self.revision, key=key, record=record, previous=previous))

    def end(self, write: Write) -> None:
        self.writes.remove(write)
        self.ledger.settle(write.key, write.amount, write.revision)

    @rule(key=KEYS, amount=AMOUNTS)
    def hold(self, key: str, amount: int) -> None:
        self.ledger.hold(key, amount)
        self.writes.append(Write(key, amount))

    @precondition(lambda self: any(write.revision is None for write in self.writes))
    @rule(data=st.data(), succeeds=st.booleans())
    def decide(self, data: st.DataObject, succeeds: bool) -> None:
        write = data.draw(st.sampled_from([write for write in self.writes if write.revision is None]))
        if succeeds:
            self.store(write.key, write.amount)
            write.revision = self.revision
        else:
            self.end(write)

    @precondition(lambda self: any(write.revision is not None for write in self.writes))
    @rule(data=st.data())
    def respond_to_the_writer(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from([write for write in self.writes if write.revision is not None])))

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def settle_a_write_of_unknown_outcome(self, data: st.DataObject) -> None:
        """Its writer got no response. Once everything is delivered, it counts if it is stored, and never will be otherwise."""
        write = data.draw(st.sampled_from(self.writes))
        while self.events:
            self.deliver()
        if self.next is not None:
            self.replace()
        write.revision = None
        self.end(write)

    @rule(key=KEYS, amount=st.sampled_from([None, 0]))
    def release(self, key: str, amount: int | None) -> None:
        """The object is deleted, or no longer counts."""
        if key in self.stored:
            self.store(key, amount)

    @precondition(lambda self: self.events)
    @rule()
    def deliver(self) -> None:
        event = self.events.pop(0)
        (self.next or self.ledger).apply(event)
        self.delivered = event.revision

    @precondition(lambda self: self.next is None)
    @rule()
    def start_over(self) -> None:
        """From now on, the ledger is told of nothing; writes begin and end meanwhile."""
        self.events.clear()
        self.next, self.delivered = Amounts(), self.revision
        for record in self.stored.values():
            self.next.learn(record)

    @precondition(lambda self: self.next is not None)
    @rule()
    def replace(self) -> None:
        assert self.next is not None
        self.next.replace(self.ledger, self.delivered)
        self.ledger, self.next = self.next, None

    @rule(lost=st.sets(KEYS))
    def restore(self, lost: set[str]) -> None:
        """A backup, in which objects have lower revisions than were known, replaces everything, at a higher revision."""
        for write in list(self.writes):
            write.revision = None
            self.end(write)
        kept = [record for key, record in self.stored.items() if key not in lost]
        self.stored = {record.key: Record(key=record.key, value=b"7", revision=record.revision - 1) for record in kept}
        self.revision += 1000
        self.start_over()
        self.replace()
        assert self.total == sum(int(record.value) for record in self.stored.values())

    @invariant()
    def counts_never_too_little(self) -> None:
        assert self.total >= sum(int(record.value) for record in self.stored.values())

    def teardown(self) -> None:
        for write in list(self.writes):
            self.end(write)
        while self.events:
            self.deliver()
        if self.next is not None:
            self.replace()
        assert self.total == sum(int(record.value) for record in self.stored.values())


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(stateful_step_count=30)


def test_a_change_that_counts_for_the_same_is_not_counted_anew() -> None:
    added: list[tuple[int, int]] = []
    ledger = GuardLedger[int](lambda record: int(record.value), lambda value, sign: added.append((value, sign)))
    for revision, value in enumerate((b"5", b"5", b"6"), 1):
        record = Record(key="/a", value=value, revision=revision)
        ledger.apply(StoreEvent(revision=revision, key="/a", record=record, previous=None))
    assert added == [(5, 1), (5, -1), (6, 1)]


def test_records_of_a_restored_store_replace_newer_ones() -> None:
    machine = LedgerMachine()
    machine.begin()
    for key in ("a", "b"):
        machine.store(key, 3)
        machine.deliver()
    machine.restore(lost={"b"})
    assert machine.total == 7
