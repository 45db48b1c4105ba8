"""The change log: readers get what they have not read, or learn that it was dropped."""

from __future__ import annotations

import pytest

from dralloc.devices.identity import PoolId
from dralloc.scheduler.state import change_log
from dralloc.scheduler.state.change_log import (
    ChangeLog,
    EverythingChanged,
    NodeChanged,
    NodeLoaded,
    PoolFreed,
    PoolTaken,
)

POOL = PoolId("gpu.example.com", "pool")


def test_a_reader_gets_the_changes_since_its_last_read_newest_first() -> None:
    log = ChangeLog()
    log.add(NodeChanged("a"))
    mark = log.next
    log.add(NodeChanged("b"))
    log.add(NodeChanged("c"))
    changes = log.since(mark)
    assert changes is not None
    assert list(changes) == [NodeChanged("c"), NodeChanged("b")]


def test_a_reader_that_is_too_late_learns_that_changes_were_dropped() -> None:
    log = ChangeLog()
    for number in range(change_log.ENTRIES_MAX + 1):
        log.add(NodeChanged(str(number)))
    assert log.since(0) is None
    assert log.since(1) is not None


def test_a_reader_gets_each_node_once() -> None:
    log = ChangeLog()
    log.add(NodeLoaded("a"))
    read = log.next
    for _ in range(3):
        log.add(NodeLoaded("b"))
        log.add(PoolTaken(POOL, "c"))
    assert list(log.worsened.since(read)) == ["c", "b"]
    assert list(log.worsened.since(0)) == ["c", "b", "a"]
    assert list(log.taken.since(read)) == ["c"]
    assert not list(log.worsened.since(log.next))


def test_pools_that_several_nodes_see_are_apart() -> None:
    log = ChangeLog()
    log.add(PoolTaken(POOL))
    log.add(PoolFreed(POOL))
    log.add(PoolFreed(POOL, "a"))
    assert list(log.pools_taken.since(0)) == list(log.pools_freed.since(0)) == [POOL]
    assert list(log.changed.since(0)) == ["a"]


def test_a_reader_that_is_too_late_must_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "ENTRIES_MAX", 2)
    log = ChangeLog()
    for name in "abc":
        log.add(NodeChanged(name))
    assert not log.is_known_since(0)
    assert log.is_known_since(1)
    log.add(EverythingChanged())
    assert not log.is_known_since(3)
    assert log.is_known_since(log.next)
