"""Each checker finds the fault that it is for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.campaign.checkers import (
    VALUE,
    DeviceLedger,
    Register,
    Violation,
    WatchJournal,
    check_acknowledged,
    compare_journals,
)


def item(name: str, revision: int, value: str | None = None) -> dict[str, Any]:
    annotations = {} if value is None else {VALUE: value}
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(revision), "annotations": annotations}}


def event(kind: str, name: str, revision: int, value: str | None = None) -> dict[str, Any]:
    return {"type": kind, "object": item(name, revision, value)}


def listed(revision: int, *items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(revision)}, "items": list(items)}


def journal_of(*events: dict[str, Any]) -> WatchJournal:
    journal = WatchJournal.after_list(listed(1))
    for each in events:
        journal.take(each)
    return journal


def test_an_acknowledged_write_that_is_gone_is_found() -> None:
    register = Register("n/r")
    register.acknowledge("1", 5)
    register.look(item("r", 5, "1"))
    for found in (None, item("r", 4, "0"), item("r", 4, "1")):
        with pytest.raises(Violation, match="lost"):
            register.look(found)


def test_a_write_of_unknown_outcome_may_have_happened_until_the_next_one() -> None:
    register = Register("n/r")
    register.acknowledge("1", 5)
    register.unknown.append("2")
    register.look(item("r", 5, "1"))
    register.look(item("r", 6, "2"))
    with pytest.raises(Violation, match="lost"):
        register.look(item("r", 5, "1"))
    register.unknown.append(None)
    register.acknowledge("3", 7)
    with pytest.raises(Violation, match="lost"):
        register.look(None)


def test_a_revision_that_is_given_twice_is_found() -> None:
    register = Register("n/r")
    register.acknowledge("1", 5)
    with pytest.raises(Violation, match="revision 5 was given after 5"):
        register.acknowledge("2", 5)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (event("MODIFIED", "a", 3, "y"), "delivered revision 3"),
        (event("ADDED", "a", 4), "was known"),
        (event("MODIFIED", "b", 4), "was unknown"),
        (event("DELETED", "b", 4), "was unknown"),
        (event("BOOKMARK", "", 2), "went back"),
        ({"type": "ERROR", "object": {"message": "too old"}}, "too old"),
    ],
)
def test_watch_events_that_are_repeated_missing_or_refused_are_found(bad: dict[str, Any], said: str) -> None:
    journal = journal_of(event("ADDED", "a", 2), event("MODIFIED", "a", 3, "x"))
    with pytest.raises(Violation, match=said):
        journal.take(bad)


def test_changes_that_a_watch_did_not_deliver_are_found() -> None:
    whole = journal_of(event("ADDED", "a", 2, "1"), event("MODIFIED", "a", 3, "2"), event("MODIFIED", "a", 4, "3"))
    partial = journal_of(event("ADDED", "a", 2, "1"), event("MODIFIED", "a", 4, "3"))
    end = listed(4, item("a", 4))
    compare_journals([whole, whole], listed(1), end)
    with pytest.raises(Violation, match="two watches differ"):
        compare_journals([whole, partial], listed(1), end)
    with pytest.raises(Violation, match="a list differ"):
        compare_journals([whole], listed(1), listed(4))
    register = Register("n/a")
    for revision in (2, 3, 4):
        register.acknowledge(str(revision - 1), revision)
    assert check_acknowledged([register], whole, since=1) == 3
    with pytest.raises(Violation, match="no watch delivered it"):
        check_acknowledged([register], partial, since=1)


def allocated(name: str, device: str, consumed: str | None = None, share: str | None = None) -> dict[str, Any]:
    result = {"driver": "d", "pool": "p", "device": device}
    extra: dict[str, Any] = {} if consumed is None else {"consumedCapacity": {"bandwidth": consumed}, "shareID": share}
    return {**item(name, 1), "status": {"allocation": {"devices": {"results": [{**result, **extra}]}}}}


def test_devices_and_capacity_that_are_given_twice_are_found() -> None:
    ledger = DeviceLedger(capacity={"nic": 10})
    ledger.take("ADDED", allocated("a", "gpu-0"))
    ledger.take("ADDED", allocated("b", "nic", "4", "1"))
    ledger.take("ADDED", allocated("c", "nic", "4", "2"))
    ledger.take("MODIFIED", allocated("a", "gpu-0"))
    assert ledger.allocations == 3
    with pytest.raises(Violation, match="gpu-0 was given to n/a and n/d"):
        ledger.take("ADDED", allocated("d", "gpu-0"))
    with pytest.raises(Violation, match="12 of 10"):
        ledger.take("ADDED", allocated("e", "nic", "4", "3"))
    ledger.take("DELETED", allocated("e", "nic", "4", "3"))
    with pytest.raises(Violation, match="share 2"):
        ledger.take("ADDED", allocated("f", "nic", "1", "2"))
