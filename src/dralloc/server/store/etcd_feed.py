"""Watches on etcd: one stream feeds a hub, which serves any number of watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple

from dralloc.rpc.generated import etcd_pb2 as pb
from dralloc.server.store.errors import Compacted, Restored, StoreError, StoreUnavailable
from dralloc.server.store.etcd_api import EtcdApi, OtherHistory
from dralloc.server.store.event_log import SLICE_MIN, EventLog, carried_bytes
from dralloc.server.store.interface import HistoryLimits, Watch
from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.store.watch_hub import WatchHub

RECONNECT_DELAY_S = 0.2
# Most waits for a revision are shorter: its event is on the way.
MARK_DELAY_S = 0.01
MARK_DELAY_MAX_S = 1.0


class KeySpace(NamedTuple):
    """Our part of etcd's keys: those that start with a root. Keys from `/\\xff` on are the store's own, and not its users'.

    Our revisions are etcd's plus the base of the store's history (`etcd_history`).
    """

    root: bytes
    base: int = 0

    def encode(self, key: str) -> bytes:
        return self.root + key.encode(errors="surrogateescape")

    def decode(self, key: bytes) -> str:
        return key[len(self.root) :].decode(errors="surrogateescape")

    def range_of(self, prefix: str) -> tuple[bytes, bytes]:
        """Returns the first key with the prefix, and the first key after them. Every key starts with a slash."""
        start = self.encode(prefix or "/")
        return start, self.marker if prefix in ("", "/") else start[:-1] + bytes((start[-1] + 1,))

    def watched_range(self, prefix: str) -> tuple[bytes, bytes]:
        """Returns the range of a watch: as above, and the marker in a watch of all keys."""
        start, end = self.range_of(prefix)
        return start, end + b"\0" if end == self.marker else end

    @property
    def marker(self) -> bytes:
        """A key that is written only to see the write in the feed."""
        return self.root + b"/\xff"

    def fence(self, name: str) -> bytes:
        """The key that every write with a fence of that name writes, too."""
        return self._fences + name.encode()

    @property
    def all_fences(self) -> tuple[bytes, bytes]:
        """The first key of fences, and the first one after them."""
        return self._fences, self._fences[:-1] + b"0"

    @property
    def _fences(self) -> bytes:
        return self.root + b"/\xfffence/"

    @property
    def history(self) -> bytes:
        """The key of the store's history."""
        return self.root + b"/\xffhistory"

    def record(self, pair: pb.KeyValue) -> Record:
        return Record(key=self.decode(pair.key), value=pair.value, revision=pair.mod_revision + self.base)


class EtcdFeed:
    """The changes under a prefix after a revision (None: from now on), as long as etcd can deliver them without a gap."""

    def __init__(
        self,
        api: EtcdApi,
        keys: KeySpace,
        *,
        prefix: str,
        after_revision: int | None,
        limits: HistoryLimits,
    ) -> None:
        self._api = api
        self._keys = keys
        self._limits = limits
        self._log = EventLog(compacted=after_revision or 0, limits=limits, weigh=carried_bytes)
        self._hub = WatchHub(self._log, revision=after_revision or 0, on_wait=None if prefix else self._start_marking)
        self._marking: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._task = asyncio.create_task(self._feed(prefix, after_revision))

    async def start(self) -> None:
        """Returns when etcd has started the watch; raises StoreUnavailable after a timeout."""
        try:
            async with asyncio.timeout(self._api.timeout_s):
                await self._started.wait()
        except TimeoutError:
            raise StoreUnavailable("etcd did not start the watch in time") from None

    @property
    def revision(self) -> int:
        """The newest revision that the feed has reached."""
        return self._hub.revision

    @property
    def ended(self) -> bool:
        return self._task.done()

    def subscribe(self, prefix: str, *, after_revision: int) -> Watch:
        """Returns a watch of a part of the feed; raises Compacted if it starts before the feed."""
        return self._hub.subscribe(prefix, after_revision=after_revision)

    def forget(self, revision: int) -> None:
        """Drops the events up to a revision, and the watches that are behind it."""
        if revision > self._log.compacted:
            self._log.compact(revision)
            self._hub.forget(revision)

    def end(self, error: StoreError) -> None:
        """Ends all watches with the error."""
        self._hub.end_watches(error)
        self.close()

    def close(self) -> None:
        self._task.cancel()
        if self._marking is not None:
            self._marking.cancel()
        self._hub.close()

    def _start_marking(self) -> None:
        if self._marking is None or self._marking.done():
            self._marking = asyncio.create_task(self._mark_while_waited_for())

    async def _mark_while_waited_for(self) -> None:
        """Writes the marker while a watch waits for a revision, which may be of a key that is not ours.

        Not etcd's requests for progress: before 3.5.8, the answer could arrive before earlier events.
        """
        put = pb.RequestOp(request_put=pb.PutRequest(key=self._keys.marker))
        delay_s = MARK_DELAY_S
        while (wanted := self._hub.wanted) is not None:
            await asyncio.sleep(delay_s)
            if self._hub.revision >= wanted:
                delay_s = MARK_DELAY_S
                continue
            with suppress(StoreError):
                await self._api.txn(pb.TxnRequest(success=[put]))
            delay_s = min(2 * delay_s, MARK_DELAY_MAX_S)

    async def _feed(self, prefix: str, after_revision: int | None) -> None:
        try:
            async for events, revision in self._changes(prefix, after_revision):
                if not self._started.is_set():
                    self._log.compact(revision)
                    self._started.set()
                for event in events:
                    self._log.append(event)
                self._hub.publish(events, revision=revision)
                self.forget(self._log.overdue(events_max=SLICE_MIN + 2 * len(events)))
        except Compacted as error:
            self._hub.end_watches(error)
        finally:
            self._hub.end_watches(StoreUnavailable("the watch on etcd ended"))

    async def _changes(self, prefix: str, after: int | None) -> AsyncIterator[tuple[Sequence[StoreEvent], int]]:
        """Yields the start revision; then changes and the revision they reach, reconnecting as needed.

        Raises Compacted.
        """
        while True:
            try:
                async with aclosing(self._api.watch(self._request(prefix, after))) as responses:
                    async for response in responses:
                        if response.canceled:
                            raise self._cancellation(response, after or 0)
                        if response.created:
                            await self._check_history(response.header, after or 0)
                        events, after = self._understand(response, after)
                        yield events, after
            except StoreUnavailable:
                await asyncio.sleep(RECONNECT_DELAY_S)

    async def _check_history(self, header: pb.ResponseHeader, after: int) -> None:
        """Raises Restored if etcd now has another history than the one that was followed until `after`.

        A restored etcd is another cluster, or behind. One member may be behind without a restore, so the newest revision is read.
        """
        if header.cluster_id != self._api.cluster_id:
            self._api.is_doubtful = True
            raise Restored(after)
        if header.revision + self._keys.base < after:
            self._api.newest_revision = max(self._api.newest_revision, after - self._keys.base)
            try:
                await self._api.range(pb.RangeRequest(key=self._keys.encode("\0"), count_only=True))
            except OtherHistory:
                raise Restored(after) from None

    def _request(self, prefix: str, after: int | None) -> pb.WatchCreateRequest:
        start, end = self._keys.watched_range(prefix)
        return pb.WatchCreateRequest(
            key=start,
            range_end=end,
            # The last revision and not the next one: etcd only rejects revisions before its compaction, and no longer
            # reports a deletion at that very revision. Zero means from now on.
            start_revision=after - self._keys.base if after else 0,
            progress_notify=True,
            prev_kv=True,
        )

    def _understand(self, response: pb.WatchResponse, after: int | None) -> tuple[Sequence[StoreEvent], int]:
        """Returns the new changes in a response, and the revision up to which all changes are reported."""
        base = self._keys.base
        if after is None:
            after = response.header.revision + base
        new = [event for event in response.events if event.kv.mod_revision + base > after]
        if new:
            marker = self._keys.marker
            # Not the header's revision, which is ahead while a watch catches up.
            return [self._event(event) for event in new if event.kv.key != marker], new[-1].kv.mod_revision + base
        is_progress = not response.created and not response.events
        return (), max(after, response.header.revision + base) if is_progress else after

    def _event(self, event: pb.Event) -> StoreEvent:
        deleted = event.type == pb.Event.DELETE
        created = not deleted and event.kv.create_revision == event.kv.mod_revision
        if not created and not event.HasField("prev_kv"):
            # The previous state was compacted while the watch caught up: consumers that need it must start over.
            raise Compacted(event.kv.mod_revision + self._keys.base - 1, compacted=0)
        return StoreEvent(
            revision=event.kv.mod_revision + self._keys.base,
            key=self._keys.decode(event.kv.key),
            record=None if deleted else self._keys.record(event.kv),
            previous=None if created else self._keys.record(event.prev_kv),
        )

    def _cancellation(self, response: pb.WatchResponse, after: int) -> Compacted | StoreUnavailable:
        if response.compact_revision:
            return Compacted(after, compacted=response.compact_revision + self._keys.base)
        return StoreUnavailable(f"etcd ended the watch: {response.cancel_reason or 'no reason given'}")


class OwnFeedWatch(Watch):
    """A watch with its own feed, because it starts before the shared feed."""

    def __init__(self, feed: EtcdFeed, prefix: str, *, after_revision: int) -> None:
        self._feed = feed
        self._watch = feed.subscribe(prefix, after_revision=after_revision)

    @property
    def revision(self) -> int:
        return self._watch.revision

    async def next(self, *, limit: int = 1000, timeout_s: float | None = None) -> Sequence[StoreEvent]:
        return await self._watch.next(limit=limit, timeout_s=timeout_s)

    def take(self, *, limit: int = 1000, bytes_max: int | None = None) -> Sequence[StoreEvent]:
        return self._watch.take(limit=limit, bytes_max=bytes_max)

    @property
    def has_more(self) -> bool:
        return self._watch.has_more

    def on_change(self, wake: Callable[[], None]) -> None:
        self._watch.on_change(wake)

    async def reach(self, revision: int) -> None:
        if self._feed.revision < revision:
            # The feed shows changes of its part of etcd only, which may be quiet, so that nothing would tell when it has got there.
            # The reader lists again, and follows the shared feed, which has the marker.
            self._feed.end(Compacted(self.revision, compacted=0))
        await self._watch.reach(revision)

    def close(self) -> None:
        self._watch.close()
        self._feed.close()
