"""The true history of the store: every change in the order of its commit, and the state at every revision.

It is fed below the code under test (a simulated etcd) or where a store makes a commit visible, and never read by components. A
restored back-up starts a new epoch, with higher revisions: what was written after the back-up is undone. Watches that started
before may still deliver the changes of their epoch, and none of the new one.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple


class StoredVersion(NamedTuple):
    """The value of a key and the revision that wrote it."""

    revision: int
    value: bytes


class CommittedChange(NamedTuple):
    """One commit of one key; `value` is None for a deletion."""

    revision: int
    key: str
    value: bytes | None
    previous: StoredVersion | None


Listener = Callable[[CommittedChange], None]


class PrefixLog:
    """The changes of one resource in one epoch."""

    def __init__(self) -> None:
        self.revisions: list[int] = []
        self.changes: list[CommittedChange] = []

    def append(self, change: CommittedChange) -> None:
        self.revisions.append(change.revision)
        self.changes.append(change)

    def place_after(self, revision: int) -> int:
        return bisect_right(self.revisions, revision)


class StoreHistory:
    """All changes since the start, by resource. Listeners get each change at its commit."""

    def __init__(self, directory: str = "") -> None:
        """`directory` is the one whose name differs from run to run; some messages contain it."""
        self.epoch = 0
        self.revision = 0
        self.state: dict[str, StoredVersion] = {}
        # The keys of the state, by resource.
        self._keys: defaultdict[str, dict[str, None]] = defaultdict(dict)
        # The number of changes before now: an order of time that is finer than the clock.
        self.changes = 0
        self._logs: defaultdict[str, PrefixLog] = defaultdict(PrefixLog)
        # The logs of earlier epochs, and the first revision of each epoch but the first.
        self._past: list[defaultdict[str, PrefixLog]] = []
        self._restored_at: list[int] = []
        self._versions: defaultdict[str, list[tuple[int, StoredVersion | None]]] = defaultdict(list)
        self._listeners: list[Listener] = []
        self._on_restored: list[Callable[[], None]] = []
        self.violations: list[str] = []
        # Writes that may still be committed: key, expected revision and value.
        self._intended: Counter[tuple[str, int, bytes | None]] = Counter()
        self._directory = directory.encode()
        self._hash = hashlib.blake2b(digest_size=8)

    @property
    def digest(self) -> str:
        """The same for two runs that made the same changes in the same order."""
        return self._hash.hexdigest()

    def intend(self, key: str, expected: int, value: bytes | None) -> None:
        """A write was sent."""
        self._intended[key, expected, value] += 1

    def withdraw(self, key: str, expected: int, value: bytes | None) -> None:
        """The sender learnt that the write did not and will not happen."""
        self._intended[key, expected, value] -= 1

    def subscribe(self, on_change: Listener, on_restored: Callable[[], None]) -> None:
        self._listeners.append(on_change)
        self._on_restored.append(on_restored)

    def append(self, revision: int, key: str, value: bytes | None) -> None:
        """The next commit. Keys that are not of objects only take a revision."""
        if revision <= self.revision:
            self.violations.append(f"{key} was committed at revision {revision} after revision {self.revision}")
        self.revision = revision
        if not key.startswith("/registry/"):
            return
        previous, resource = self.state.pop(key, None), resource_of_key(key)
        intent = (key, previous.revision if previous else 0, value)
        if self._intended[intent] <= 0:
            self.violations.append(f"{key} was committed at revision {revision}, but this write was not asked for")
        else:
            self._intended[intent] -= 1
            if not self._intended[intent]:
                del self._intended[intent]
        if value is not None:
            self.state[key] = StoredVersion(revision, value)
            self._keys[resource][key] = None
        elif previous is not None:
            del self._keys[resource][key]
        change = CommittedChange(revision, key, value, previous)
        self.changes += 1
        told = b"" if value is None else value.replace(self._directory, b"") if self._directory else value
        self._hash.update(b"%d %b %d " % (revision, key.encode(), len(told)) + told)
        self._versions[key].append((self.changes, self.state.get(key)))
        self._logs[resource].append(change)
        for listener in self._listeners:
            listener(change)

    def restore(self, state: Mapping[str, StoredVersion], revision: int) -> None:
        """A back-up replaces everything."""
        self.epoch += 1
        self.revision = revision
        self.state = dict(state)
        self.changes += 1
        self._past.append(self._logs)
        self._restored_at.append(revision)
        self._logs = defaultdict(PrefixLog)
        self._versions = defaultdict(list)
        self._keys = defaultdict(dict)
        for key, version in self.state.items():
            self._keys[resource_of_key(key)][key] = None
            self._versions[key].append((self.changes, version))
        for on_restored in self._on_restored:
            on_restored()

    def log_of(self, prefix: str, epoch: int | None = None) -> PrefixLog:
        """The changes of a resource in an epoch; without one, in this epoch."""
        return self._logs[prefix] if epoch in (None, self.epoch) else self._past[epoch][prefix]

    def epoch_of(self, revision: int) -> int:
        return bisect_right(self._restored_at, revision)

    def keys(self, prefix: str) -> list[str]:
        """The keys of a resource as they are, in their order."""
        return sorted(self._keys[prefix])

    def state_at(self, prefix: str, revision: int) -> dict[str, int]:
        """The revisions of the keys of a resource at a revision of this epoch."""
        state = {key: self.state[key].revision for key in self._keys[prefix]}
        log = self._logs[prefix]
        for change in reversed(log.changes[log.place_after(revision) :]):
            if change.previous is None:
                state.pop(change.key, None)
            else:
                state[change.key] = change.previous.revision
        return state

    def versions_since(self, key: str, moment: int) -> list[StoredVersion | None]:
        """What a key was at this moment (a number of changes) and at every later one."""
        versions = self._versions[key]
        place = bisect_right(versions, moment, key=lambda entry: entry[0])
        before = versions[place - 1][1] if place else None
        return [before, *(version for _, version in versions[place:])]


def resource_of_key(key: str) -> str:
    """The part of a key that names its resource, with the slash after it: /registry/RESOURCE/."""
    return key[: key.index("/", len("/registry/")) + 1]
