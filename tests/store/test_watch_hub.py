"""Watches that share a hub: positions, limits, and isolation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dralloc.server.store.errors import Compacted, StoreUnavailable, WatcherTooSlow
from dralloc.server.store.event_log import EventLog
from dralloc.server.store.interface import HistoryLimits, Watch
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.store.watch_hub import WatchHub


class Fixture:
    """A log and its hub; events are written by name."""

    def __init__(self) -> None:
        self.log = EventLog(compacted=0, limits=HistoryLimits())
        self.hub = WatchHub(self.log, revision=0)

    def write(self, *keys: str) -> None:
        events = [
            StoreEvent(revision=revision, key=key, record=Record(key=key, value=b"", revision=revision), previous=None)
            for revision, key in enumerate(keys, start=self.hub.revision + 1)
        ]
        for event in events:
            self.log.append(event)
        self.hub.publish(events, revision=events[-1].revision)

    def forget(self, revision: int) -> None:
        self.log.compact(revision)
        self.hub.forget(revision)


def seen(watch: Watch) -> list[int]:
    return [event.revision for event in asyncio.run(watch.next(timeout_s=0))]


def test_an_older_watch_does_not_affect_the_others() -> None:
    fixture = Fixture()
    fixture.write("a1", "b1", "a2", "b2")
    young = fixture.hub.subscribe("a", after_revision=2)
    old = fixture.hub.subscribe("a", after_revision=0)
    fixture.write("a3")
    assert seen(young) == [3, 5]
    assert seen(old) == [1, 3, 5]
    fixture.write("a4")
    assert seen(young) == seen(old) == [6]


def test_a_watch_tells_whether_there_is_more_to_take() -> None:
    fixture = Fixture()
    watch = fixture.hub.subscribe("a", after_revision=0)
    told = [watch.has_more]
    fixture.write("a1", "a2", "b1")
    told.append(watch.has_more)
    for revision in (1, 2):
        assert [event.revision for event in watch.take(limit=1)] == [revision]
        told.append(watch.has_more)
    assert told == [False, True, True, False]


def test_a_key_shorter_than_the_longest_prefix_is_delivered_once() -> None:
    fixture = Fixture()
    watch = fixture.hub.subscribe("a", after_revision=0)
    fixture.hub.subscribe("abcdef", after_revision=0)
    fixture.write("a")
    assert seen(watch) == [1]


def test_a_watch_overtaken_by_compaction_is_dropped_and_the_others_continue() -> None:
    fixture = Fixture()
    slow = fixture.hub.subscribe("a", after_revision=0)
    quick = fixture.hub.subscribe("a", after_revision=0)
    fixture.write("a1", "a2", "b1")
    assert seen(quick) == [1, 2]
    fixture.forget(1)
    with pytest.raises(WatcherTooSlow, match="revision 1"):
        seen(slow)
    with pytest.raises(Compacted):
        fixture.hub.subscribe("a", after_revision=0)
    fixture.write("a3")
    assert seen(quick) == [4]


def test_a_watch_without_backlog_is_not_dropped() -> None:
    fixture = Fixture()
    idle = fixture.hub.subscribe("a", after_revision=0)
    fixture.write("b1", "b2")
    fixture.forget(2)
    assert seen(idle) == []
    assert idle.revision == 2


def test_the_revision_of_a_watch_waits_for_pending_events() -> None:
    fixture = Fixture()
    watch = fixture.hub.subscribe("a", after_revision=0)
    fixture.write("a1", "a2", "b1")
    assert watch.revision == 0
    assert [event.revision for event in asyncio.run(watch.next(limit=1))] == [1]
    assert watch.revision == 1
    assert seen(watch) == [2]
    assert watch.revision == 3


def test_a_batch_that_ends_within_a_revision_loses_nothing_of_it() -> None:
    fixture = Fixture()
    watch = fixture.hub.subscribe("a", after_revision=0)
    twins = [StoreEvent(revision=1, key=key, record=None, previous=None) for key in ("a1", "a2")]
    for event in twins:
        fixture.log.append(event)
    fixture.hub.publish(twins, revision=1)
    batches: list[Sequence[StoreEvent]] = [asyncio.run(watch.next(limit=1)) for _ in twins]
    assert [event.key for batch in batches for event in batch] == ["a1", "a2"]


def test_ended_watches_raise_the_error_and_new_ones_may_follow() -> None:
    fixture = Fixture()
    ended = fixture.hub.subscribe("a", after_revision=0)
    fixture.write("a1")
    fixture.hub.end_watches(StoreUnavailable("gone fishing"))
    with pytest.raises(StoreUnavailable, match="fishing"):
        seen(ended)
    ended.close()
    assert seen(fixture.hub.subscribe("a", after_revision=0)) == [1]


def test_repeated_timeouts_leak_nothing() -> None:
    async def run() -> None:
        fixture = Fixture()
        with fixture.hub.subscribe("a", after_revision=0) as watch:
            for _ in range(3):
                assert list(await watch.next(timeout_s=0.001)) == []
            reader = asyncio.create_task(watch.next())
            await asyncio.sleep(0)
            fixture.write("a1")
            assert [event.revision for event in await reader] == [1]
            assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    asyncio.run(run())


def test_history_stays_within_its_limits_of_events() -> None:
    async def run() -> None:
        store = MemoryStore(limits=HistoryLimits(events_max=1000))
        slow = await store.watch("/", after_revision=1)
        record = await store.create("/a", b"")
        for _ in range(3000):
            record = await store.update("/a", b"", expected_revision=record.revision)
        with pytest.raises(WatcherTooSlow):
            await slow.next()
        with pytest.raises(Compacted):
            await store.list_prefix("/", revision=record.revision - 1300)
        assert (await store.list_prefix("/", revision=record.revision - 999)).revision

    asyncio.run(run())


def test_history_stays_within_its_limits_of_bytes() -> None:
    async def run() -> None:
        store = MemoryStore(limits=HistoryLimits(bytes_max=1 << 20))
        record = await store.create("/a", bytes(1 << 16))
        for _ in range(40):
            record = await store.update("/a", bytes(1 << 16), expected_revision=record.revision)
        with pytest.raises(Compacted):
            await store.list_prefix("/", revision=record.revision - 20)
        assert (await store.list_prefix("/", revision=record.revision - 15)).revision

    asyncio.run(run())
