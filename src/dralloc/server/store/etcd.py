"""The store for several machines: etcd, so that several API servers can serve one cluster.

Reads and writes go to etcd, which answers with the newest state. Watches share one stream. Other users of the same etcd
share its revisions and its compaction: revisions grow by more than our own writes.

An etcd that was restored has another history (`etcd_history`). No write is sent to it before that is settled: after a broken call or
stream, and after a second without an answer, the history is read first; and each write compares the history's key.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Self

from dralloc.primitives.clock import Clock
from dralloc.rpc.generated import etcd_pb2 as pb
from dralloc.server.store.errors import (
    Compacted,
    FenceMoved,
    FutureRevision,
    KeyExists,
    Restored,
    RevisionConflict,
    StoreClosed,
    StoreError,
)
from dralloc.server.store.etcd_api import EtcdAddress, EtcdApi, OtherHistory
from dralloc.server.store.etcd_feed import EtcdFeed, KeySpace, OwnFeedWatch
from dralloc.server.store.etcd_history import EtcdHistory, EtcdMemory, SeenRevision, settle_history
from dralloc.server.store.interface import FIRST_REVISION, Fence, HistoryLimits, Page, PageToken, Store, Watch
from dralloc.server.store.records import Record
from dralloc.server.store.revisioned_map import ABSENT
from dralloc.system_clock import SystemClock

RECORDS_PER_CALL_MAX = 1000
RAW_REVISION_MAX = 2**63 - 1
"""The highest number in a message of etcd."""
# No etcd is replaced by a restored one in a shorter time than this.
HEARD_WITHIN_S = 1.0


class EtcdStore(Store):
    """Our keys under a root in etcd."""

    def __init__(
        self, api: EtcdApi, keys: KeySpace, *, limits: HistoryLimits, clock: Clock, memory: EtcdMemory | None = None
    ) -> None:
        self._api = api
        self._keys = keys
        self._limits = limits
        self._clock = clock
        self._history: EtcdHistory | None = None
        # That of an earlier process.
        self._remembered: EtcdHistory | None = None
        self._memory = memory
        self._remembering: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._feed: EtcdFeed | None = None
        self._own_feeds: list[EtcdFeed] = []
        self._compaction: asyncio.Task[None] | None = None
        self._compact_above = 2 * limits.events_max
        self._closed = False

    @classmethod
    async def open(
        cls,
        address: EtcdAddress,
        *,
        root: str = "",
        limits: HistoryLimits | None = None,
        memory: EtcdMemory | None = None,
    ) -> Self:
        """Connects; raises StoreUnavailable if no server answers."""
        return await cls.open_with(EtcdApi(address), root=root, limits=limits, memory=memory)

    @classmethod
    async def open_with(
        cls,
        api: EtcdApi,
        *,
        root: str = "",
        limits: HistoryLimits | None = None,
        clock: Clock | None = None,
        memory: EtcdMemory | None = None,
    ) -> Self:
        keys = KeySpace(root.encode())
        store = cls(api, keys, limits=limits or HistoryLimits(), clock=clock or SystemClock(), memory=memory)
        try:
            store._remember()
            await store._feed_near(FIRST_REVISION)
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def newest_seen(self) -> int:
        return self._api.newest_revision + self._keys.base

    async def current_revision(self) -> int:
        await self._settle_history()
        keys = self._keys
        response = await self._api.range(pb.RangeRequest(key=keys.encode("\0"), count_only=True))
        return response.header.revision + keys.base

    async def get(self, key: str) -> Record | None:
        await self._settle_history()
        keys = self._keys
        response = await self._api.range(pb.RangeRequest(key=keys.encode(key)))
        return keys.record(response.kvs[0]) if response.kvs else None

    async def list_prefix(
        self, prefix: str, *, revision: int | None = None, limit: int | None = None, page: PageToken | None = None
    ) -> Page:
        if limit is not None:
            return await self._list_page(prefix, revision or 0, limit, page)
        records: list[Record] = []
        while True:
            part = await self._list_page(prefix, revision or 0, RECORDS_PER_CALL_MAX, page)
            records.extend(part.records)
            page = part.next
            if page is None:
                return Page(records=records, revision=part.revision)

    async def create(
        self, key: str, value: bytes, *, fences: Sequence[Fence] = (), unchanged: Sequence[Record] = ()
    ) -> Record:
        assert key.startswith("/"), "a key is a path"
        put = _put(self._keys.encode(key), value)
        return Record(key=key, value=value, revision=await self._swap(key, ABSENT, put, fences, unchanged))

    async def update(self, key: str, value: bytes, *, expected_revision: int, fences: Sequence[Fence] = ()) -> Record:
        assert expected_revision != ABSENT, "an update replaces a record"
        put = _put(self._keys.encode(key), value)
        return Record(key=key, value=value, revision=await self._swap(key, expected_revision, put, fences))

    async def delete(self, key: str, *, expected_revision: int, fences: Sequence[Fence] = ()) -> int:
        assert expected_revision != ABSENT, "a deletion removes a record"
        remove = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=self._keys.encode(key)))
        return await self._swap(key, expected_revision, remove, fences)

    async def settle(self, fence: str, token: bytes) -> int:
        await self._settle_history()
        keys = self._keys
        # Earlier writes have another token, or have not seen this one. The marker shows the revision in the feed.
        puts = [_put(keys.fence(fence), token), _put(keys.marker, b"")]
        response = await self._api.txn(pb.TxnRequest(compare=[self._same_history()], success=puts))
        if not response.succeeded:
            raise self._other_history()
        return response.header.revision + keys.base

    async def watch(self, prefix: str, *, after_revision: int) -> Watch:
        feed = await self._feed_near(after_revision)
        self._check_history_of(after_revision)
        with contextlib.suppress(Compacted):
            return feed.subscribe(prefix, after_revision=after_revision)
        await self._check_kept(after_revision)
        feed = self._feed_after(prefix, after_revision)
        self._own_feeds = [*(other for other in self._own_feeds if not other.ended), feed]
        return OwnFeedWatch(feed, prefix, after_revision=after_revision)

    async def compact(self, revision: int) -> None:
        feed = await self._feed_near(FIRST_REVISION)
        # Another user of the cluster may have compacted already.
        with contextlib.suppress(Compacted):
            self._check_history_of(revision)
            await self._api.compact(pb.CompactionRequest(revision=revision - self._keys.base))
        feed.forget(revision)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            for task in (self._compaction, self._settling, self._remembering):
                if task is not None:
                    task.cancel()
            if self._remembering is not None:
                await asyncio.gather(self._remembering, return_exceptions=True)
            for feed in self._feeds():
                feed.close()
            await self._api.close()

    async def _list_page(self, prefix: str, revision: int, limit: int, token: PageToken | None) -> Page:
        await self._settle_history()
        keys = self._keys
        start, end = keys.range_of(prefix)
        if token is not None:
            start = keys.encode(prefix + token.start_after + "\0")
        at = token.revision if token else revision
        if at:
            self._check_history_of(at)
        request = pb.RangeRequest(key=start, range_end=end, limit=limit, revision=at - keys.base if at else 0)
        response = await self._api.range(request)
        records = [keys.record(pair) for pair in response.kvs]
        at = at or response.header.revision + keys.base
        if not response.more:
            return Page(records=records, revision=at)
        last = records[-1].key[len(prefix) :]
        next_page = PageToken(revision=at, start_after=last, remaining=response.count - len(records))
        return Page(records=records, revision=at, next=next_page)

    async def _swap(
        self,
        key: str,
        expected_revision: int,
        change: pb.RequestOp,
        fences: Sequence[Fence],
        unchanged: Sequence[Record] = (),
    ) -> int:
        """Returns the revision of the change; raises KeyExists, RevisionConflict with the existing record, or FenceMoved."""
        await self._settle_history()
        keys, history = self._keys, self._history
        encoded = keys.encode(key)
        compares = [self._same_history(), _is_at(encoded, expected_revision, keys.base)]
        compares += [_is_at(keys.encode(record.key), record.revision, keys.base) for record in unchanged]
        looks = [pb.RequestOp(request_range=pb.RangeRequest(key=each)) for each in (encoded, keys.history)]
        request = pb.TxnRequest(compare=compares, success=[change], failure=looks)
        for fence in fences:
            fence_key = keys.fence(fence.name)
            request.compare.append(_condition(fence_key, fence, keys.base))
            request.success.append(_put(fence_key, fence.token))
        response = await self._api.txn(request)
        if response.succeeded:
            self._compact_if_overdue(response.header.revision)
            return response.header.revision + keys.base
        found, settled = (each.response_range.kvs for each in response.responses)
        assert history is not None, "it is settled before a write"
        if not settled or settled[0].value != history.encode():
            raise self._other_history()
        current = keys.record(found[0]) if found else None
        if (current.revision if current else ABSENT) == expected_revision:
            raise FenceMoved(key)
        if expected_revision == ABSENT:
            raise KeyExists(key)
        raise RevisionConflict(key, expected=expected_revision, current=current)

    def _feed_after(self, prefix: str, revision: int | None) -> EtcdFeed:
        return EtcdFeed(self._api, self._keys, prefix=prefix, after_revision=revision, limits=self._limits)

    async def _feed_near(self, revision: int) -> EtcdFeed:
        """Returns the feed, started; raises FutureRevision."""
        while True:
            await self._settle_history()
            if self._feed is None or self._feed.ended:
                self._feed = self._feed_after("", None)
            feed = self._feed
            await feed.start()
            if revision > feed.revision and revision > (current := await self.current_revision()):
                raise FutureRevision(revision, current=current)
            # It may have ended meanwhile. Its successor does not deliver what was written before it has started.
            if not feed.ended:
                return feed

    async def _check_kept(self, revision: int) -> None:
        if revision < FIRST_REVISION:
            raise Compacted(revision, compacted=0)
        at = revision - self._keys.base
        with contextlib.suppress(FutureRevision):
            await self._api.range(pb.RangeRequest(key=self._keys.encode("\0"), revision=at, count_only=True))

    def _compact_if_overdue(self, raw_revision: int) -> None:
        """Compacts etcd regularly, by its own revisions. Several servers of one cluster may do so concurrently."""
        if raw_revision > self._compact_above:
            self._compact_above = raw_revision + self._limits.events_max
            until = raw_revision + self._keys.base - self._limits.events_max
            self._compaction = asyncio.create_task(self._try_to_compact(until))

    async def _try_to_compact(self, revision: int) -> None:
        # Whatever the failure, compaction is tried again later.
        with contextlib.suppress(StoreError):
            await self.compact(revision)

    async def _settle_history(self) -> None:
        """Returns when etcd is known to have the history of our revisions; otherwise that is begun, and all watches end."""
        if self._closed:
            raise StoreClosed
        while not self._is_certain():
            # All calls wait for one attempt, and share its failure: one after the other, they would wait for each other's timeouts.
            settling = self._settling
            if settling is None or settling.done():
                settling = self._settling = asyncio.create_task(self._settle_once())
                settling.add_done_callback(_retrieve)
            # Not `shield`: Python 3.14 logs a failure that a waiter does not see because it was cancelled.
            await asyncio.wait((settling,))
            settling.result()

    async def _settle_once(self) -> None:
        known = self._history or self._remembered
        found, header = await settle_history(self._api, self._keys, known, self._clock.now())
        # Together with the base: an answer of this cluster is of this history.
        self._api.follow(header, is_new=found != self._history)
        if found != self._history:
            is_restored, self._history = self._history is not None, found
            self._keys = KeySpace(self._keys.root, found.base)
            self._compact_above = header.revision + self._limits.events_max
            for feed in self._feeds() if is_restored else ():
                feed.end(Restored(feed.revision))

    def _remember(self) -> None:
        """Begin with what an earlier process has seen, and keep what this one sees."""
        if self._memory is not None:
            if (seen := self._memory.read()) is not None:
                self._remembered, self._api.newest_revision = seen.history, seen.revision
            self._remembering = asyncio.create_task(self._memory.write_regularly(self._seen))

    def _seen(self) -> SeenRevision | None:
        return SeenRevision(self._history, self._api.newest_revision) if self._history is not None else None

    def _is_certain(self) -> bool:
        silent_s = asyncio.get_running_loop().time() - self._api.heard_s
        return self._history is not None and not self._api.is_doubtful and silent_s < HEARD_WITHIN_S

    def _same_history(self) -> pb.Compare:
        assert self._history is not None, "it is settled before a write"
        value, key = self._history.encode(), self._keys.history
        return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.VALUE, key=key, value=value)

    def _other_history(self) -> OtherHistory:
        """Another server has found that etcd was restored."""
        self._api.is_doubtful = True
        return OtherHistory("etcd was restored from a backup")

    def _check_history_of(self, revision: int) -> None:
        """Raises Restored for a revision of an earlier history, and FutureRevision for one that etcd cannot have."""
        if FIRST_REVISION <= revision <= self._keys.base:
            raise Restored(revision)
        if revision - self._keys.base > RAW_REVISION_MAX:
            raise FutureRevision(revision, current=self.newest_seen)

    def _feeds(self) -> list[EtcdFeed]:
        return [feed for feed in (self._feed, *self._own_feeds) if feed is not None]


def _retrieve(task: asyncio.Task[None]) -> None:
    """No call may wait any more for the failure."""
    if not task.cancelled():
        task.exception()


def _put(key: bytes, value: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))


def _is_at(key: bytes, revision: int, base: int) -> pb.Compare:
    # A revision of an earlier history is below the base, and equal to none.
    expected = ABSENT if revision == ABSENT else revision - base or -1
    return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=key, mod_revision=expected)


def _condition(key: bytes, fence: Fence, base: int) -> pb.Compare:
    if fence.seen is None:
        return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.VALUE, key=key, value=fence.token)
    return pb.Compare(result=pb.Compare.LESS, target=pb.Compare.MOD, key=key, mod_revision=fence.seen - base + 1)
