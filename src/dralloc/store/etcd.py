"""The store for several machines: etcd, so that several API servers can serve one cluster.

Reads and writes go to etcd, which answers with the newest state. Watches share one stream. Other users of the same etcd
share its revisions and its compaction: revisions grow by more than our own writes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Self

from dralloc.rpc.generated import etcd_pb2 as pb
from dralloc.store.errors import (
    Compacted,
    FenceMoved,
    FutureRevision,
    KeyExists,
    Restored,
    RevisionConflict,
    StoreClosed,
    StoreError,
)
from dralloc.store.etcd_api import EtcdAddress, EtcdApi
from dralloc.store.etcd_feed import EtcdFeed, KeySpace, OwnFeedWatch
from dralloc.store.interface import FIRST_REVISION, Fence, HistoryLimits, Page, PageToken, Store, Watch
from dralloc.store.records import Record
from dralloc.store.revisioned_map import ABSENT

RECORDS_PER_CALL_MAX = 1000


class EtcdStore(Store):
    """Our keys under a root in etcd."""

    def __init__(self, api: EtcdApi, keys: KeySpace, *, limits: HistoryLimits) -> None:
        self._api = api
        self._keys = keys
        self._limits = limits
        self._feed = self._feed_after("", None)
        self._own_feeds: set[EtcdFeed] = set()
        self._compaction: asyncio.Task[None] | None = None
        self._compact_above = 2 * limits.events_max
        self._closed = False

    @classmethod
    async def open(cls, address: EtcdAddress, *, root: str = "", limits: HistoryLimits | None = None) -> Self:
        """Connects; raises StoreUnavailable if no server answers."""
        return await cls.open_with(EtcdApi(address), root=root, limits=limits)

    @classmethod
    async def open_with(cls, api: EtcdApi, *, root: str = "", limits: HistoryLimits | None = None) -> Self:
        store = cls(api, KeySpace(root.encode()), limits=limits or HistoryLimits())
        try:
            await store.current_revision()
            await store._feed.start()
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def newest_seen(self) -> int:
        return self._api.newest_revision

    async def current_revision(self) -> int:
        self._check_open()
        response = await self._api.range(pb.RangeRequest(key=self._keys.encode("\0"), count_only=True))
        return response.header.revision

    async def get(self, key: str) -> Record | None:
        self._check_open()
        response = await self._api.range(pb.RangeRequest(key=self._keys.encode(key)))
        return self._keys.record(response.kvs[0]) if response.kvs else None

    async def list_prefix(
        self, prefix: str, *, revision: int | None = None, limit: int | None = None, page: PageToken | None = None
    ) -> Page:
        self._check_open()
        if limit is not None:
            return await self._list_page(prefix, revision or 0, limit, page)
        records: list[Record] = []
        while True:
            part = await self._list_page(prefix, revision or 0, RECORDS_PER_CALL_MAX, page)
            records.extend(part.records)
            page = part.next
            if page is None:
                return Page(records=records, revision=part.revision)

    async def create(self, key: str, value: bytes, *, fences: Sequence[Fence] = ()) -> Record:
        assert key.startswith("/"), "a key is a path"
        put = _put(self._keys.encode(key), value)
        return Record(key=key, value=value, revision=await self._swap(key, ABSENT, put, fences))

    async def update(self, key: str, value: bytes, *, expected_revision: int, fences: Sequence[Fence] = ()) -> Record:
        assert expected_revision != ABSENT, "an update replaces a record"
        put = _put(self._keys.encode(key), value)
        return Record(key=key, value=value, revision=await self._swap(key, expected_revision, put, fences))

    async def delete(self, key: str, *, expected_revision: int) -> int:
        assert expected_revision != ABSENT, "a deletion removes a record"
        remove = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=self._keys.encode(key)))
        return await self._swap(key, expected_revision, remove)

    async def settle(self, fence: str, token: bytes) -> int:
        self._check_open()
        # Earlier writes have another token, or have not seen this one. The marker shows the revision in the feed.
        puts = [_put(self._keys.fence(fence), token), _put(self._keys.marker, b"")]
        return (await self._api.txn(pb.TxnRequest(success=puts))).header.revision

    async def watch(self, prefix: str, *, after_revision: int) -> Watch:
        feed = await self._feed_near(after_revision)
        if after_revision < feed.restored_at:
            raise Restored(after_revision)
        with contextlib.suppress(Compacted):
            return feed.subscribe(prefix, after_revision=after_revision)
        await self._check_kept(after_revision)
        feed = self._feed_after(prefix, after_revision)
        self._own_feeds = {feed, *(other for other in self._own_feeds if not other.ended)}
        return OwnFeedWatch(feed, prefix, after_revision=after_revision)

    async def compact(self, revision: int) -> None:
        self._check_open()
        # Another user of the cluster may have compacted already.
        with contextlib.suppress(Compacted):
            await self._api.compact(pb.CompactionRequest(revision=revision))
        self._feed.forget(revision)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._compaction is not None:
                self._compaction.cancel()
            for feed in (self._feed, *self._own_feeds):
                feed.close()
            await self._api.close()

    async def _list_page(self, prefix: str, revision: int, limit: int, token: PageToken | None) -> Page:
        start, end = self._keys.range_of(prefix)
        if token is not None:
            start = self._keys.encode(prefix + token.start_after + "\0")
        at = token.revision if token else revision
        response = await self._api.range(pb.RangeRequest(key=start, range_end=end, limit=limit, revision=at))
        records = [self._keys.record(pair) for pair in response.kvs]
        at = at or response.header.revision
        if not response.more:
            return Page(records=records, revision=at)
        last = records[-1].key[len(prefix) :]
        next_page = PageToken(revision=at, start_after=last, remaining=response.count - len(records))
        return Page(records=records, revision=at, next=next_page)

    async def _swap(self, key: str, expected_revision: int, change: pb.RequestOp, fences: Sequence[Fence] = ()) -> int:
        """Returns the revision of the change; raises KeyExists, RevisionConflict with the existing record, or FenceMoved."""
        self._check_open()
        encoded = self._keys.encode(key)
        unchanged = pb.Compare(
            result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=encoded, mod_revision=expected_revision
        )
        look = pb.RequestOp(request_range=pb.RangeRequest(key=encoded))
        request = pb.TxnRequest(compare=[unchanged], success=[change], failure=[look])
        for fence in fences:
            fence_key = self._keys.fence(fence.name)
            request.compare.append(_condition(fence_key, fence))
            request.success.append(_put(fence_key, fence.token))
        response = await self._api.txn(request)
        if response.succeeded:
            self._compact_if_overdue(response.header.revision)
            return response.header.revision
        found = response.responses[0].response_range.kvs
        current = self._keys.record(found[0]) if found else None
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
            self._check_open()
            if self._feed.ended:
                self._feed = self._feed.successor()
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
        with contextlib.suppress(FutureRevision):
            await self._api.range(pb.RangeRequest(key=self._keys.encode("\0"), revision=revision, count_only=True))

    def _compact_if_overdue(self, revision: int) -> None:
        """Compacts etcd regularly. Several servers of one cluster may do so concurrently."""
        if revision > self._compact_above:
            self._compact_above = revision + self._limits.events_max
            self._compaction = asyncio.create_task(self._try_to_compact(revision - self._limits.events_max))

    async def _try_to_compact(self, revision: int) -> None:
        # Whatever the failure, compaction is tried again later.
        with contextlib.suppress(StoreError):
            await self.compact(revision)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed


def _put(key: bytes, value: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))


def _condition(key: bytes, fence: Fence) -> pb.Compare:
    if fence.seen is None:
        return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.VALUE, key=key, value=fence.token)
    return pb.Compare(result=pb.Compare.LESS, target=pb.Compare.MOD, key=key, mod_revision=fence.seen + 1)
