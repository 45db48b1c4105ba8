"""A store whose every call is compared with the true history: its answer must be right at a moment between call and return.

The history has the order of the commits, so a moment can be looked up instead of searched. This finds lost and doubled writes,
stale reads, wrong conflicts and lists that mix revisions, whichever store is below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dralloc.server.store.errors import FenceMoved, KeyExists, RevisionConflict
from dralloc.server.store.interface import Fence, Page, PageToken, Store, Watch
from dralloc.server.store.records import Record, StoreEvent
from tests.simulator.history import CommittedChange, PrefixLog, StoredVersion, StoreHistory, resource_of_key


class RecordedStore(Store):
    """Passes everything on to a store."""

    def __init__(self, inner: Store, history: StoreHistory) -> None:
        self._inner = inner
        self._history = history

    @property
    def newest_seen(self) -> int:
        return self._inner.newest_seen

    async def current_revision(self) -> int:
        started, epoch = self._history.revision, self._history.epoch
        revision = await self._inner.current_revision()
        if epoch == self._history.epoch and not started <= revision <= self._history.revision:
            self._violation(f"the current revision was {revision}; it was {started} before the call")
        return revision

    async def get(self, key: str) -> Record | None:
        call = _Call(self._history, key)
        record = await self._inner.get(key)
        call.check_read(_version(record))
        return record

    async def list_prefix(
        self, prefix: str, *, revision: int | None = None, limit: int | None = None, page: PageToken | None = None
    ) -> Page:
        started, epoch = self._history.revision, self._history.epoch
        found = await self._inner.list_prefix(prefix, revision=revision, limit=limit, page=page)
        if epoch == self._history.epoch:
            if revision is None and page is None and not started <= found.revision <= self._history.revision:
                self._violation(f"a list of {prefix} is of revision {found.revision}; it was {started} before the call")
            if limit is None and page is None and len(prefix) > len("/registry/"):
                self._check_list(prefix, found)
        return found

    async def create(
        self, key: str, value: bytes, *, fences: Sequence[Fence] = (), unchanged: Sequence[Record] = ()
    ) -> Record:
        call = _Call(self._history, key)
        self._history.intend(key, 0, value)
        try:
            record = await self._inner.create(key, value, fences=fences, unchanged=unchanged)
        except KeyExists:
            self._history.withdraw(key, 0, value)
            call.check_failed(lambda version: version is not None, "it did not exist")
            raise
        except FenceMoved:
            self._history.withdraw(key, 0, value)
            raise
        call.check_written(record.revision, value, expected=0)
        return record

    async def update(self, key: str, value: bytes, *, expected_revision: int, fences: Sequence[Fence] = ()) -> Record:
        call = _Call(self._history, key)
        self._history.intend(key, expected_revision, value)
        try:
            record = await self._inner.update(key, value, expected_revision=expected_revision, fences=fences)
        except RevisionConflict as error:
            self._history.withdraw(key, expected_revision, value)
            call.check_conflict(error, expected_revision)
            raise
        except FenceMoved:
            self._history.withdraw(key, expected_revision, value)
            raise
        call.check_written(record.revision, value, expected=expected_revision)
        return record

    async def delete(self, key: str, *, expected_revision: int, fences: Sequence[Fence] = ()) -> int:
        call = _Call(self._history, key)
        self._history.intend(key, expected_revision, None)
        try:
            revision = await self._inner.delete(key, expected_revision=expected_revision, fences=fences)
        except RevisionConflict as error:
            self._history.withdraw(key, expected_revision, None)
            call.check_conflict(error, expected_revision)
            raise
        except FenceMoved:
            self._history.withdraw(key, expected_revision, None)
            raise
        call.check_written(revision, None, expected=expected_revision)
        return revision

    async def settle(self, fence: str, token: bytes) -> int:
        return await self._inner.settle(fence, token)

    async def watch(self, prefix: str, *, after_revision: int) -> Watch:
        watch = await self._inner.watch(prefix, after_revision=after_revision)
        return _RecordedWatch(watch, self._history, prefix, after_revision)

    async def compact(self, revision: int) -> None:
        await self._inner.compact(revision)

    async def close(self) -> None:
        await self._inner.close()

    def _check_list(self, prefix: str, found: Page) -> None:
        expected = self._history.state_at(resource_of_key(prefix + "x/"), found.revision)
        expected = {key: revision for key, revision in expected.items() if key.startswith(prefix)}
        listed = {record.key: record.revision for record in found.records}
        if listed != expected:
            different = sorted(dict(listed.items() ^ expected.items()))
            self._violation(f"a list of {prefix} at revision {found.revision} is wrong about {different[:3]}")

    def _violation(self, what: str) -> None:
        self._history.violations.append(what)


class _Call:
    """A call about one key, and what the key was meanwhile."""

    def __init__(self, history: StoreHistory, key: str) -> None:
        self._history = history
        self._key = key
        self._started = history.changes
        self._started_at = history.revision
        self._epoch = history.epoch

    def check_read(self, version: StoredVersion | None) -> None:
        if self._is_current and version not in self._versions:
            self._violation(f"a read of {self._key} returned {_name(version)}; it was {_names(self._versions)}")

    def check_failed(self, possible: Callable[[StoredVersion | None], bool], otherwise: str) -> None:
        if self._is_current and not any(map(possible, self._versions)):
            self._violation(f"a write of {self._key} was refused although {otherwise}")

    def check_conflict(self, error: RevisionConflict, expected: int) -> None:
        current = _version(error.current)
        self.check_failed(
            lambda version: version == current and (version.revision if version else 0) != expected,
            f"it was {_names(self._versions)} and never {_name(current)}",
        )

    def check_written(self, revision: int, value: bytes | None, *, expected: int) -> None:
        if not self._is_current:
            return
        log = self._history.log_of(resource_of_key(self._key))
        place = log.place_after(revision) - 1
        change = log.changes[place] if place >= 0 and log.revisions[place] == revision else None
        if change is None or change.key != self._key or change.value != value:
            self._violation(f"a write of {self._key} was acknowledged at revision {revision} and was never committed")
        elif (change.previous.revision if change.previous else 0) != expected:
            self._violation(
                f"a write of {self._key} expected revision {expected} and replaced {_name(change.previous)}"
            )
        elif revision <= self._started_at:
            self._violation(f"a write of {self._key} was acknowledged with the older revision {revision}")

    @property
    def _is_current(self) -> bool:
        """False for a call across a restore, which has no right answer."""
        return self._epoch == self._history.epoch

    @property
    def _versions(self) -> list[StoredVersion | None]:
        return self._history.versions_since(self._key, self._started)

    def _violation(self, what: str) -> None:
        self._history.violations.append(what)


class _RecordedWatch(Watch):
    """A watch of a store: every change once, in order and without gaps."""

    def __init__(self, inner: Watch, history: StoreHistory, prefix: str, after: int) -> None:
        self._inner = inner
        self._history = history
        self._prefix = prefix
        self._log: PrefixLog | None = None
        self._place = 0
        if len(prefix) > len("/registry/"):
            self._log = history.log_of(resource_of_key(prefix + "x/"), history.epoch_of(after))
            self._place = self._log.place_after(after)

    @property
    def revision(self) -> int:
        return self._inner.revision

    async def next(self, *, limit: int = 1000, timeout_s: float | None = None) -> Sequence[StoreEvent]:
        return self._checked(await self._inner.next(limit=limit, timeout_s=timeout_s))

    def take(self, *, limit: int = 1000, bytes_max: int | None = None) -> Sequence[StoreEvent]:
        return self._checked(self._inner.take(limit=limit, bytes_max=bytes_max))

    @property
    def has_more(self) -> bool:
        return self._inner.has_more

    def on_change(self, wake: Callable[[], None]) -> None:
        self._inner.on_change(wake)

    async def reach(self, revision: int) -> None:
        await self._inner.reach(revision)

    def close(self) -> None:
        self._inner.close()

    def _checked(self, events: Sequence[StoreEvent]) -> Sequence[StoreEvent]:
        if self._log is not None:
            self._check(events)
        return events

    def _check(self, events: Iterable[StoreEvent]) -> None:
        assert self._log is not None
        for event in events:
            change = self._next_change()
            value = event.record.value if event.record else None
            if change is None or (change.revision, change.key, change.value) != (event.revision, event.key, value):
                expected = f"expected {change.key} at {change.revision}" if change else "nothing was committed"
                self._history.violations.append(
                    f"a watch of {self._prefix} delivered {event.key} at {event.revision}; {expected}"
                )
                self._place = self._log.place_after(event.revision)
                return
            self._place += 1

    def _next_change(self) -> CommittedChange | None:
        """The next change under the watched prefix, which may be one namespace of a resource."""
        assert self._log is not None
        while self._place < len(self._log.changes):
            if self._log.changes[self._place].key.startswith(self._prefix):
                return self._log.changes[self._place]
            self._place += 1
        return None


def _version(record: Record | None) -> StoredVersion | None:
    return None if record is None else StoredVersion(record.revision, record.value)


def _name(version: StoredVersion | None) -> str:
    return "absent" if version is None else f"at revision {version.revision}"


def _names(versions: Iterable[StoredVersion | None]) -> str:
    return ", ".join(map(_name, versions))
