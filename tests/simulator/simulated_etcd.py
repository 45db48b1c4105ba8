"""A small model of etcd's key-value service: transactions, ranges, watches and compaction, as far as the store uses them.

It states etcd's documented behaviour once more, on purpose without a line of the store. What is committed survives; clients reach
it only over the simulated network (`etcd_channel`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from dralloc.rpc.generated import etcd_pb2 as pb
from tests.simulator.history import StoredVersion, StoreHistory

COMPACTED: Final = "etcdserver: mvcc: required revision has been compacted"
FUTURE: Final = "etcdserver: mvcc: required revision is a future revision"
PROGRESS_EVERY_S: Final = 600.0
# Where servers keep what they add to revisions.
HISTORY_KEY: Final = b"/\xffhistory"


class OutOfRange(Exception):
    """The revision is compacted or in the future."""


class _Pair(Struct, frozen=True, gc=False):
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int

    def message(self) -> pb.KeyValue:
        return pb.KeyValue(
            key=self.key,
            value=self.value,
            create_revision=self.create_revision,
            mod_revision=self.mod_revision,
            version=self.version,
        )


class _Event(Struct, frozen=True, gc=False):
    revision: int
    key: bytes
    pair: _Pair | None
    previous: _Pair | None


class EtcdSnapshot(Struct, frozen=True):
    """A back-up: what `etcdctl snapshot save` contains."""

    revision: int
    pairs: dict[bytes, _Pair]


class EtcdWatch:
    """One watch; `responses` is what its stream delivers, None for a stream that breaks."""

    def __init__(self, request: pb.WatchCreateRequest) -> None:
        self.request = request
        self.responses: asyncio.Queue[pb.WatchResponse | None] = asyncio.Queue()

    def covers(self, key: bytes) -> bool:
        return _covers(self.request.key, self.request.range_end, key)


class SimulatedEtcd:
    """One member; its commits are the true history."""

    def __init__(self, history: StoreHistory) -> None:
        self._history = history
        self.revision = 1
        self._cluster_id = 1
        # What servers add to revisions; the history has the sums. After a restore nothing may be written until they have a new one.
        self._base = 0
        self._awaits_base = False
        self._compacted = 0
        self._pairs: dict[bytes, _Pair] = {}
        # The keys of the pairs, in order.
        self._keys: list[bytes] = []
        self._events: list[_Event] = []
        self._watches: dict[EtcdWatch, None] = {}
        history.revision = self.revision

    # --- calls --------------------------------------------------------------------------------------------

    def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        at = request.revision or self.revision
        if at > self.revision:
            raise OutOfRange(FUTURE)
        if at < self._compacted:
            raise OutOfRange(COMPACTED)
        pairs = [pair for key in self._between(request.key, request.range_end, at) if (pair := self._pair_at(key, at))]
        shown = pairs[: request.limit] if request.limit else pairs
        return pb.RangeResponse(
            header=self._header(),
            kvs=[] if request.count_only else [pair.message() for pair in shown],
            more=len(shown) < len(pairs) and not request.count_only,
            count=len(pairs),
        )

    def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        succeeded = all(map(self._holds, request.compare))
        operations = request.success if succeeded else request.failure
        writes: dict[bytes, bytes | None] = {}
        responses = []
        for operation in operations:
            match operation.WhichOneof("request"):
                case "request_put":
                    writes[operation.request_put.key] = operation.request_put.value
                    responses.append(pb.ResponseOp(response_put=pb.PutResponse()))
                case "request_delete_range":
                    asked = operation.request_delete_range
                    between = self._between(asked.key, asked.range_end, self.revision)
                    removed = [key for key in between if key in self._pairs]
                    writes.update(dict.fromkeys(removed))
                    removal = pb.DeleteRangeResponse(deleted=len(removed))
                    responses.append(pb.ResponseOp(response_delete_range=removal))
                case _:
                    responses.append(pb.ResponseOp(response_range=self.range(operation.request_range)))
        if writes:
            self._commit(writes)
        return pb.TxnResponse(header=self._header(), succeeded=succeeded, responses=responses)

    def compact(self, request: pb.CompactionRequest) -> pb.CompactionResponse:
        if request.revision <= self._compacted:
            raise OutOfRange(COMPACTED)
        if request.revision > self.revision:
            raise OutOfRange(FUTURE)
        self.compact_to(request.revision)
        return pb.CompactionResponse(header=self._header())

    def compact_to(self, revision: int) -> None:
        self._compacted = max(self._compacted, revision)
        # An event at the compacted revision itself stays, except for a deletion.
        self._events = [
            event
            for event in self._events
            if event.revision > self._compacted or (event.revision == self._compacted and event.pair is not None)
        ]

    def watch(self, request: pb.WatchCreateRequest) -> EtcdWatch:
        watch = EtcdWatch(request)
        put = watch.responses.put_nowait
        put(pb.WatchResponse(header=self._header(), created=True))
        start = request.start_revision
        if start and start < self._compacted:
            put(pb.WatchResponse(header=self._header(), canceled=True, compact_revision=self._compacted))
            return watch
        if start:
            self._deliver(watch, self._events)
        self._watches[watch] = None
        return watch

    def cancel(self, watch: EtcdWatch) -> None:
        self._watches.pop(watch, None)

    def progress(self, watch: EtcdWatch) -> None:
        """Tell a watch how far it is."""
        watch.responses.put_nowait(pb.WatchResponse(header=self._header()))

    async def notify_progress(self) -> None:
        """Tell all idle watches from time to time."""
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            for watch in tuple(self._watches):
                if watch.request.progress_notify:
                    self.progress(watch)

    # --- operators ----------------------------------------------------------------------------------------

    def snapshot(self) -> EtcdSnapshot:
        return EtcdSnapshot(self.revision, dict(self._pairs))

    @property
    def cluster_id(self) -> int:
        """Another one after each restore; connections are to one of them."""
        return self._cluster_id

    def restore(self, snapshot: EtcdSnapshot, *, bump: int = 0) -> None:
        """Start again from a back-up, as `etcdutl snapshot restore` with another `--initial-cluster-token`, and maybe with
        `--bump-revision BUMP --mark-compacted`: another cluster, in which every connection breaks.
        """
        self.revision = snapshot.revision + bump
        self._cluster_id += 1
        self._pairs = dict(snapshot.pairs)
        self._keys = sorted(self._pairs)
        self._compacted = self.revision
        self._events = []
        self._awaits_base = True
        self.break_streams()

    def _begin_history(self, base: int) -> None:
        """The servers have a new base: what they read from now on is of another epoch."""
        self._base = base
        if self._awaits_base:
            self._awaits_base = False
            state = {
                key.decode(): StoredVersion(pair.mod_revision + base, pair.value)
                for key, pair in self._pairs.items()
                if key.startswith(b"/registry/")
            }
            self._history.restore(state, self.revision + base)
        else:
            # The first history of a new etcd: its key takes a revision.
            self._history.append(self.revision + base, "", None)

    def break_streams(self) -> None:
        watches, self._watches = self._watches, {}
        for watch in watches:
            watch.responses.put_nowait(None)

    # --- state --------------------------------------------------------------------------------------------

    def _commit(self, writes: dict[bytes, bytes | None]) -> None:
        """All writes of a transaction have one revision, and arrive together."""
        self.revision += 1
        events = [self._apply(key, value) for key, value in writes.items()]
        named = sorted((event.key, event.pair) for event in events if event.key.startswith(b"/registry/"))
        assert len(named) <= 1, "the store changes one object at a time"
        key, pair = named[0] if named else (b"", None)
        if (history := writes.get(HISTORY_KEY)) is not None:
            self._begin_history(msgspec.json.decode(history)["base"])
        elif self._awaits_base:
            if key:
                self._history.violations.append(
                    f"{key.decode()} was written to a restored etcd as if it were the old one"
                )
        else:
            self._history.append(self.revision + self._base, key.decode(), pair.value if pair else None)
        for watch in self._watches:
            self._deliver(watch, events)

    def _deliver(self, watch: EtcdWatch, events: list[_Event]) -> None:
        told = [event for event in events if watch.covers(event.key) and event.revision >= watch.request.start_revision]
        if told:
            messages = [self._message(event) for event in told]
            watch.responses.put_nowait(pb.WatchResponse(header=self._header(), events=messages))

    def _apply(self, key: bytes, value: bytes | None) -> _Event:
        previous = self._pairs.pop(key, None)
        pair = None
        if value is not None:
            created = previous.create_revision if previous else self.revision
            version = previous.version + 1 if previous else 1
            pair = self._pairs[key] = _Pair(key, value, created, self.revision, version)
        if previous is None:
            insort(self._keys, key)
        elif pair is None:
            del self._keys[bisect_left(self._keys, key)]
        event = _Event(self.revision, key, pair, previous)
        self._events.append(event)
        return event

    def _message(self, event: _Event) -> pb.Event:
        kv = event.pair.message() if event.pair else pb.KeyValue(key=event.key, mod_revision=event.revision)
        told = pb.Event(type=pb.Event.PUT if event.pair else pb.Event.DELETE, kv=kv)
        # etcd reads the previous pair when it sends the event; it may be compacted by then.
        if event.previous is not None and event.revision > self._compacted:
            told.prev_kv.CopyFrom(event.previous.message())
        return told

    def _holds(self, compare: pb.Compare) -> bool:
        pair = self._pairs.get(compare.key)
        revision = pair.mod_revision if pair else 0
        match compare.target, compare.result:
            case pb.Compare.MOD, pb.Compare.EQUAL:
                return revision == compare.mod_revision
            case pb.Compare.MOD, pb.Compare.LESS:
                return revision < compare.mod_revision
            case pb.Compare.VALUE, pb.Compare.EQUAL:
                return pair is not None and pair.value == compare.value
        raise AssertionError(f"the store compares nothing like {compare}")

    def _between(self, start: bytes, end: bytes, revision: int) -> Sequence[bytes]:
        """The keys that may have had a pair at the revision."""
        if not end:
            return (start,)
        keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]
        if revision == self.revision:
            return keys
        return sorted({*keys, *(event.key for event in self._events_after(revision) if start <= event.key < end)})

    def _pair_at(self, key: bytes, revision: int) -> _Pair | None:
        pair = self._pairs.get(key)
        if revision == self.revision or (pair is not None and pair.mod_revision <= revision):
            return pair
        return next((event.previous for event in self._events_after(revision) if event.key == key), pair)

    def _events_after(self, revision: int) -> Sequence[_Event]:
        return self._events[bisect_right(self._events, revision, key=lambda event: event.revision) :]

    def _header(self) -> pb.ResponseHeader:
        return pb.ResponseHeader(cluster_id=self._cluster_id, revision=self.revision)


def _covers(start: bytes, end: bytes, key: bytes) -> bool:
    return start <= key < end if end else key == start
