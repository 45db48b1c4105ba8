"""The history that the revisions of an etcd belong to.

A restored etcd keeps the revisions of its keys, so a write that was decided before the restore would be accepted after it. Our revisions
are therefore those of etcd plus a base. A key of the store has the base, and the cluster to which it belongs: an etcd that was restored
is another cluster, and gets a new base above all revisions that were given out. So every revision of a client is outdated, without a
write to any object. The key is written by a comparison: of several servers, one begins the new history, and the others follow. It has no
fences, so that nothing is stored that was decided before: a creation names no revision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.new_history import first_of_history
from dralloc.rpc.generated import etcd_pb2 as pb
from dralloc.server.store.disk import Disk
from dralloc.server.store.errors import CorruptStore
from dralloc.server.store.etcd_api import EtcdApi
from dralloc.server.store.etcd_feed import KeySpace

_logger = logging.getLogger(__name__)


class EtcdHistory(msgspec.Struct, frozen=True):
    """The cluster that the revisions come from, and what is added to them."""

    cluster_id: int
    base: int

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


async def settle_history(
    api: EtcdApi, keys: KeySpace, known: EtcdHistory | None, now: datetime
) -> tuple[EtcdHistory, pb.ResponseHeader]:
    """Returns the history that etcd has, and the header of its answer. Begins a new history if etcd was restored: it is another cluster
    than the one that the key names, or it is behind what this client has seen: bases and revisions only grow. Raises StoreError.
    """
    key = keys.history
    while True:
        newest_seen = api.newest_revision
        answer = await api.range_of_any_history(pb.RangeRequest(key=key))
        found = _decode(answer.kvs[0].value) if answer.kvs else None
        is_behind = (
            found is not None and known is not None and (found.base, answer.header.revision) < (known.base, newest_seen)
        )
        if found is not None and found.cluster_id == answer.header.cluster_id and not is_behind:
            return found, answer.header
        given_out = [
            history.base + revision
            for history, revision in ((found, answer.header.revision), (known, newest_seen))
            if history
        ]
        # Without a key, the store is new or of an earlier version, whose revisions are etcd's.
        begun = EtcdHistory(answer.header.cluster_id, first_of_history(max(given_out), now) if given_out else 0)
        unchanged = pb.Compare(
            result=pb.Compare.EQUAL,
            target=pb.Compare.MOD,
            key=key,
            mod_revision=answer.kvs[0].mod_revision if answer.kvs else 0,
        )
        put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=begun.encode()))
        # A writer may have a token of the back-up, and what it has decided is of the earlier history.
        first, end = keys.all_fences
        forget = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=first, range_end=end))
        written = await api.txn_of_any_history(pb.TxnRequest(compare=[unchanged], success=[put, forget]))
        if written.succeeded and written.header.cluster_id == begun.cluster_id:
            if given_out:
                _logger.warning("etcd was restored from a backup: revisions go on after %d", begun.base)
            return begun, written.header


def _decode(value: bytes) -> EtcdHistory:
    try:
        return msgspec.json.decode(value, type=EtcdHistory)
    except UNREADABLE as error:
        raise CorruptStore(f"etcd: the key of the store's history is damaged: {error}") from None


# --- Etcd memory ----------------------------------------------------------------------------------------------------
# What a server remembers of an etcd beyond its own end: the history and the newest revision that it has seen, in a
# file.
#
# An etcd that was restored while no server ran can look like the one before: with the same cluster token, it has
# the same ID. A server that remembers a higher revision notices. The file is written about once a second and when
# the server stops.


WRITE_EVERY_S = 1.0


class SeenRevision(msgspec.Struct, frozen=True):
    """The newest revision, as etcd counts, that a server has seen in a history."""

    history: EtcdHistory
    revision: int


class EtcdMemory:
    """The file of one server and one store."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self._path = path
        self._disk = disk or Disk()
        self._written: SeenRevision | None = None
        self._is_failing = False

    def read(self) -> SeenRevision | None:
        """What was seen before; None at the first start. Raises CorruptStore."""
        try:
            content = self._disk.read(self._path)
            self._written = msgspec.json.decode(content, type=SeenRevision) if content is not None else None
        except (*UNREADABLE, OSError) as error:
            raise CorruptStore(
                f"{self._path} cannot be read: {error}; it tells whether etcd was restored from a backup. If it was not, remove the file"
            ) from None
        return self._written

    async def write_regularly(self, seen: Callable[[], SeenRevision | None]) -> None:
        """Runs until it is cancelled, and writes what was seen then."""
        writing: asyncio.Future[None] | None = None
        try:
            while True:
                await asyncio.sleep(WRITE_EVERY_S)
                writing = asyncio.ensure_future(asyncio.to_thread(self._write, seen()))
                await asyncio.shield(writing)
        finally:
            # A thread cannot be cancelled: what it is writing must not replace what is written now.
            if writing is not None:
                await asyncio.wait((writing,))
            self._write(seen())

    def _write(self, seen: SeenRevision | None) -> None:
        if seen is None or seen == self._written:
            return
        try:
            self._disk.replace(self._path, msgspec.json.encode(seen))
        except OSError as error:
            if not self._is_failing:
                _logger.warning("%s cannot be written: %s", self._path, error.strerror)
            self._is_failing = True
        else:
            self._written, self._is_failing = seen, False
