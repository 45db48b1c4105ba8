"""The contract of every store, tested on all of them."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

from dralloc.server.store.errors import (
    BadPageToken,
    Compacted,
    FenceMoved,
    FutureRevision,
    KeyExists,
    RevisionConflict,
    StoreClosed,
)
from dralloc.server.store.interface import PageToken, Store, Watch
from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.store.store_url import open_store

TEST_TIMEOUT_S = 60.0


def on_every_store(scenario: Callable[[Store], Awaitable[None]]) -> Callable[[str], None]:
    """Returns the scenario as a test of each store."""

    def test(store_url: str) -> None:
        async def run() -> None:
            async with asyncio.timeout(TEST_TIMEOUT_S), await open_store(store_url) as store:
                await scenario(store)

        asyncio.run(run())

    return test


async def take(watch: Watch, count: int) -> list[StoreEvent]:
    """Returns the next events; fails if the store returns more at once."""
    events: list[StoreEvent] = []
    while len(events) < count:
        events.extend(await watch.next())
    assert len(events) == count
    return events


async def pages(store: Store, prefix: str, *, limit: int) -> list[Sequence[Record]]:
    page = await store.list_prefix(prefix, limit=limit)
    found = [page.records]
    while page.next is not None:
        page = await store.list_prefix(prefix, limit=limit, page=page.next)
        found.append(page.records)
    return found


def keys(records: Sequence[Record]) -> list[str]:
    return [record.key for record in records]


@on_every_store
async def test_each_write_takes_the_next_revision(store: Store) -> None:
    start = await store.current_revision()
    created = await store.create("/a", b"1")
    updated = await store.update("/a", b"2", expected_revision=created.revision)
    deleted = await store.delete("/a", expected_revision=updated.revision)
    assert [created.revision, updated.revision, deleted] == [start + 1, start + 2, start + 3]
    assert await store.current_revision() == start + 3


@on_every_store
async def test_a_record_reads_back_as_written(store: Store) -> None:
    assert await store.get("/a") is None
    created = await store.create("/a", b"1")
    assert created == Record(key="/a", value=b"1", revision=created.revision)
    assert await store.get("/a") == created
    updated = await store.update("/a", b"2", expected_revision=created.revision)
    assert await store.get("/a") == updated
    await store.delete("/a", expected_revision=updated.revision)
    assert await store.get("/a") is None


@on_every_store
async def test_values_are_any_bytes_and_keys_any_text(store: Store) -> None:
    values = {"/empty": b"", "/zero": b"\0\xff\0", "/large": bytes(1 << 20), "/ключ/鍵/🔑": "ß".encode()}
    for key, value in values.items():
        await store.create(key, value)
    page = await store.list_prefix("/")
    assert {record.key: record.value for record in page.records} == values
    assert list((await store.list_prefix("/ключ/")).records) == [await store.get("/ключ/鍵/🔑")]


@on_every_store
async def test_a_key_is_created_once(store: Store) -> None:
    first = await store.create("/a", b"1")
    with pytest.raises(KeyExists):
        await store.create("/a", b"2")
    assert await store.get("/a") == first
    assert await store.current_revision() == first.revision


@on_every_store
async def test_a_key_is_created_only_if_what_that_was_decided_on_is_unchanged(store: Store) -> None:
    first = await store.create("/a", b"1")
    await store.create("/a/1", b"", unchanged=(first,))
    second = await store.update("/a", b"2", expected_revision=first.revision)
    other = await store.create("/b", b"1")
    for unchanged in (first,), (other, first):
        with pytest.raises(FenceMoved):
            await store.create("/a/2", b"", unchanged=unchanged)
    await store.create("/a/2", b"", unchanged=(other, second))
    await store.delete("/a", expected_revision=second.revision)
    with pytest.raises(FenceMoved):
        await store.create("/a/3", b"", unchanged=(second,))
    assert keys((await store.list_prefix("/a")).records) == ["/a/1", "/a/2"]


@on_every_store
async def test_a_deleted_key_is_created_again(store: Store) -> None:
    first = await store.create("/a", b"1")
    await store.delete("/a", expected_revision=first.revision)
    second = await store.create("/a", b"2")
    assert await store.get("/a") == second


@on_every_store
async def test_a_write_on_a_stale_revision_fails_with_the_current_record(store: Store) -> None:
    first = await store.create("/a", b"1")
    second = await store.update("/a", b"2", expected_revision=first.revision)
    with pytest.raises(RevisionConflict) as update:
        await store.update("/a", b"3", expected_revision=first.revision)
    with pytest.raises(RevisionConflict) as delete:
        await store.delete("/a", expected_revision=first.revision)
    assert update.value.current == delete.value.current == second
    assert await store.get("/a") == second
    assert await store.current_revision() == second.revision


@on_every_store
async def test_a_write_on_a_missing_key_is_a_conflict_without_a_record(store: Store) -> None:
    with pytest.raises(RevisionConflict) as update:
        await store.update("/a", b"1", expected_revision=7)
    with pytest.raises(RevisionConflict) as delete:
        await store.delete("/a", expected_revision=7)
    assert update.value.current is None
    assert delete.value.current is None


@on_every_store
async def test_one_of_many_writers_on_one_revision_wins(store: Store) -> None:
    first = await store.create("/a", b"")
    writes = (store.update("/a", bytes([number]), expected_revision=first.revision) for number in range(20))
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Record)]
    assert sum(isinstance(outcome, RevisionConflict) for outcome in outcomes) == 19
    assert await store.get("/a") == winner


@on_every_store
async def test_a_key_that_exists_can_be_read(store: Store) -> None:
    async def create_or_read(number: int) -> Record | None:
        try:
            return await store.create("/a", bytes([number]))
        except KeyExists:
            return await store.get("/a")

    seen = await asyncio.gather(*(create_or_read(number) for number in range(20)))
    assert len(set(seen)) == 1


@on_every_store
async def test_no_increment_is_lost_among_concurrent_writers(store: Store) -> None:
    await store.create("/count", b"0")

    async def increment() -> None:
        while True:
            record = await store.get("/count")
            assert record is not None
            try:
                await store.update("/count", b"%d" % (int(record.value) + 1), expected_revision=record.revision)
            except RevisionConflict:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(12)))
    record = await store.get("/count")
    assert record is not None
    assert record.value == b"12"


@on_every_store
async def test_a_list_has_the_keys_of_the_prefix_in_order(store: Store) -> None:
    names = ["/b/2", "/b", "/b/1", "/b/", "/c", "/a/1", "/bb", "/b/10", "/b/é", "/b/Z"]
    for name in names:
        await store.create(name, name.encode())
    page = await store.list_prefix("/b/")
    assert keys(page.records) == ["/b/", "/b/1", "/b/10", "/b/2", "/b/Z", "/b/é"]
    assert page.revision == await store.current_revision()
    assert page.next is None
    assert keys((await store.list_prefix("")).records) == sorted(names)
    assert keys((await store.list_prefix("/none")).records) == []


@on_every_store
async def test_pages_cover_a_list_once_and_count_the_rest(store: Store) -> None:
    for number in range(10):
        await store.create(f"/a/{number}", b"")
    await store.create("/b", b"")
    page = await store.list_prefix("/a/", limit=4)
    assert (len(page.records), page.remaining) == (4, 6)
    assert [keys(records) for records in await pages(store, "/a/", limit=4)] == [
        ["/a/0", "/a/1", "/a/2", "/a/3"],
        ["/a/4", "/a/5", "/a/6", "/a/7"],
        ["/a/8", "/a/9"],
    ]
    assert [len(records) for records in await pages(store, "/a/", limit=5)] == [5, 5]
    assert [len(records) for records in await pages(store, "/a/", limit=10)] == [10]
    assert [len(records) for records in await pages(store, "/none/", limit=3)] == [0]


@on_every_store
async def test_later_pages_show_the_state_of_the_first(store: Store) -> None:
    records = [await store.create(f"/a/{number}", b"old") for number in range(6)]
    first = await store.list_prefix("/a/", limit=2)
    assert first.next is not None
    await store.delete("/a/3", expected_revision=records[3].revision)
    await store.update("/a/4", b"new", expected_revision=records[4].revision)
    await store.create("/a/25", b"new")
    again = await store.delete("/a/5", expected_revision=records[5].revision)
    await store.create("/a/5", b"new")
    token = PageToken.decode(first.next.encode())
    second = await store.list_prefix("/a/", limit=3, page=token)
    assert second.next is not None
    third = await store.list_prefix("/a/", limit=3, page=second.next)
    assert [*second.records, *third.records] == records[2:]
    assert (second.remaining, third.remaining) == (1, 0)
    assert first.revision == second.revision == third.revision
    assert again > third.revision


@on_every_store
async def test_a_list_at_a_revision_has_the_state_of_that_revision(store: Store) -> None:
    first = await store.create("/a", b"1")
    second = await store.create("/b", b"1")
    await store.delete("/a", expected_revision=first.revision)
    third = await store.update("/b", b"2", expected_revision=second.revision)
    recreated = await store.create("/a", b"2")
    states = {
        first.revision - 1: [],
        first.revision: [first],
        second.revision: [first, second],
        second.revision + 1: [second],
        third.revision: [third],
        recreated.revision: [recreated, third],
    }
    for revision, state in states.items():
        page = await store.list_prefix("/", revision=revision)
        assert (list(page.records), page.revision) == (state, revision)
        counted = await store.list_prefix("/", revision=revision, limit=1)
        assert counted.remaining == max(0, len(state) - 1)


@on_every_store
async def test_a_page_token_cannot_leave_its_prefix(store: Store) -> None:
    await store.create("/a/1", b"")
    await store.create("/b/1", b"")
    token = PageToken(revision=await store.current_revision(), start_after="../b/", remaining=5)
    assert keys((await store.list_prefix("/a/", page=token, limit=5)).records) == ["/a/1"]


@on_every_store
async def test_a_future_revision_cannot_be_read(store: Store) -> None:
    record = await store.create("/a", b"")
    # The last one is the highest that a client can name.
    for future in (record.revision + 1, 2**63 - 1, 2**63, 2**64 - 1):
        with pytest.raises(FutureRevision):
            await store.list_prefix("/", revision=future)
        with pytest.raises(FutureRevision):
            await store.list_prefix("/", page=PageToken(revision=future, start_after="", remaining=0))
        with pytest.raises(FutureRevision):
            await store.watch("/", after_revision=future)
        with pytest.raises(FutureRevision):
            await store.compact(future)
    with pytest.raises(FutureRevision) as refusal:
        await store.watch("/", after_revision=record.revision + 1)
    assert refusal.value.current == record.revision


@on_every_store
async def test_compaction_drops_earlier_states(store: Store) -> None:
    first = await store.create("/a", b"1")
    second = await store.update("/a", b"2", expected_revision=first.revision)
    third = await store.create("/b", b"1")
    await store.compact(second.revision)
    with pytest.raises(Compacted):
        await store.list_prefix("/", revision=first.revision)
    with pytest.raises(Compacted):
        await store.watch("/", after_revision=first.revision)
    assert list((await store.list_prefix("/", revision=second.revision)).records) == [second]
    assert list((await store.list_prefix("/")).records) == [second, third]
    with await store.watch("/", after_revision=second.revision) as watch:
        (event,) = await take(watch, 1)
        assert event.record == third
    await store.compact(first.revision)
    await store.compact(second.revision)


@on_every_store
async def test_a_list_overtaken_by_compaction_continues_in_the_newest_state(store: Store) -> None:
    records = [await store.create(f"/{number}", b"") for number in range(6)]
    page = await store.list_prefix("/", limit=2)
    assert page.next is not None
    deleted = await store.delete("/3", expected_revision=records[3].revision)
    await store.compact(deleted)
    with pytest.raises(Compacted):
        await store.list_prefix("/", limit=2, page=page.next)
    rest = await store.list_prefix("/", limit=2, page=msgspec.structs.replace(page.next, revision=0))
    assert (keys(rest.records), rest.revision, rest.remaining) == (["/2", "/4"], deleted, 1)


@on_every_store
async def test_a_watch_yields_every_change_with_the_previous_record(store: Store) -> None:
    start = await store.current_revision()
    with await store.watch("/a", after_revision=start) as watch:
        first = await store.create("/a", b"1")
        second = await store.update("/a", b"2", expected_revision=first.revision)
        deleted = await store.delete("/a", expected_revision=second.revision)
        third = await store.create("/a", b"3")
        assert await take(watch, 4) == [
            StoreEvent(revision=first.revision, key="/a", record=first, previous=None),
            StoreEvent(revision=second.revision, key="/a", record=second, previous=first),
            StoreEvent(revision=deleted, key="/a", record=None, previous=second),
            StoreEvent(revision=third.revision, key="/a", record=third, previous=None),
        ]


@on_every_store
async def test_a_watch_from_the_past_yields_everything_since(store: Store) -> None:
    first = await store.create("/a/1", b"1")
    await store.create("/b/1", b"1")
    second = await store.update("/a/1", b"2", expected_revision=first.revision)
    with await store.watch("/a/", after_revision=first.revision) as watch:
        third = await store.create("/a/2", b"1")
        events = await take(watch, 2)
    assert [event.record for event in events] == [second, third]
    assert events[0].previous == first
    with await store.watch("/a/", after_revision=first.revision - 1) as watch:
        assert [event.record for event in await take(watch, 3)] == [first, second, third]


@on_every_store
async def test_watches_see_exactly_their_prefix_in_order(store: Store) -> None:
    start = await store.current_revision()
    prefixes = ["/", "/a/", "/a/1", "/b", "/none/"]
    watches = {prefix: await store.watch(prefix, after_revision=start) for prefix in prefixes}
    names = [f"/{group}/{number}" for group in "ab" for number in range(25)]
    random.Random(7).shuffle(names)
    written = sorted(await asyncio.gather(*(store.create(name, b"") for name in names)), key=lambda each: each.revision)
    for prefix, watch in watches.items():
        want = [record for record in written if record.key.startswith(prefix)]
        assert [event.record for event in await take(watch, len(want))] == want
        watch.close()


@on_every_store
async def test_a_watch_returns_at_most_the_limit(store: Store) -> None:
    start = await store.current_revision()
    for number in range(5):
        await store.create(f"/{number}", b"")
    with await store.watch("/", after_revision=start) as watch:
        found: list[str] = []
        while len(found) < 5:
            events = await watch.next(limit=2)
            assert 1 <= len(events) <= 2
            found += [event.key for event in events]
    assert found == ["/0", "/1", "/2", "/3", "/4"]


@on_every_store
async def test_a_watch_reports_its_revision(store: Store) -> None:
    start = await store.current_revision()
    with await store.watch("/", after_revision=start) as watch:
        assert watch.revision >= start
        record = await store.create("/a", b"")
        await take(watch, 1)
        assert watch.revision == record.revision


@on_every_store
async def test_a_watch_times_out(store: Store) -> None:
    with await store.watch("/", after_revision=await store.current_revision()) as watch:
        assert list(await watch.next(timeout_s=0)) == []
        assert list(await watch.next(timeout_s=0.01)) == []
        record = await store.create("/a", b"")
        assert [event.record for event in await watch.next(timeout_s=TEST_TIMEOUT_S)] == [record]


@on_every_store
async def test_cancelling_a_reader_loses_no_event(store: Store) -> None:
    with await store.watch("/", after_revision=await store.current_revision()) as watch:
        reader = asyncio.create_task(watch.next())
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        record = await store.create("/a", b"")
        assert [event.record for event in await take(watch, 1)] == [record]


@on_every_store
async def test_compaction_does_not_affect_a_current_watch(store: Store) -> None:
    with await store.watch("/", after_revision=await store.current_revision()) as watch:
        first = await store.create("/a", b"1")
        await take(watch, 1)
        deleted = await store.delete("/a", expected_revision=first.revision)
        await take(watch, 1)
        await store.compact(deleted)
        second = await store.create("/a", b"2")
        assert [event.record for event in await take(watch, 1)] == [second]


@on_every_store
async def test_a_closed_store_rejects_calls_and_ends_its_watches(store: Store) -> None:
    await store.create("/a", b"")
    watch = await store.watch("/", after_revision=await store.current_revision())
    waiting = asyncio.create_task(watch.next())
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    for refused in (
        waiting,
        store.get("/a"),
        store.list_prefix("/"),
        store.create("/b", b""),
        store.update("/a", b"", expected_revision=2),
        store.delete("/a", expected_revision=2),
        store.watch("/", after_revision=2),
        store.compact(2),
        store.current_revision(),
    ):
        with pytest.raises(StoreClosed):
            await refused


@pytest.mark.parametrize("url", ["sqlite_url", "etcd_url"])
def test_writes_survive_reopening(url: str, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue(url)

    async def run() -> None:
        async with await open_store(address) as store:
            first = await store.create("/a", b"1")
            second = await store.update("/a", b"2", expected_revision=first.revision)
            gone = await store.create("/b", b"1")
            deleted = await store.delete("/b", expected_revision=gone.revision)
        async with await open_store(address) as store:
            assert await store.current_revision() == deleted
            assert list((await store.list_prefix("/")).records) == [second]
            with await store.watch("/", after_revision=first.revision) as watch:
                events = await take(watch, 3)
            assert [(event.record, event.previous) for event in events] == [(second, first), (gone, None), (None, gone)]
            await store.compact(deleted)
        async with await open_store(address) as store:
            assert await store.current_revision() == deleted
            with pytest.raises(Compacted):
                await store.list_prefix("/", revision=first.revision)
            assert (await store.create("/b", b"2")).revision == deleted + 1

    asyncio.run(run())


DEEP_TOKEN = base64.urlsafe_b64encode(b'{"a":' + b"[" * 40_000).decode()


@pytest.mark.parametrize(
    "text", ["", "x", "!!!!", "e30", "bnVsbA", "eyJyZXZpc2lvbiI6LTF9", "ÿ", "A" * 5000, DEEP_TOKEN]
)
def test_invalid_page_tokens_are_rejected(text: str) -> None:
    with pytest.raises(BadPageToken):
        PageToken.decode(text)
