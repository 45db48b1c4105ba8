"""The change log: readers get what they have not read, or learn that it was dropped."""

from __future__ import annotations

from dralloc.scheduler.state import change_log
from dralloc.scheduler.state.change_log import ChangeLog, NodeChanged


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
