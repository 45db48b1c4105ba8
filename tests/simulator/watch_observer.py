"""Clients that only watch, and compare what they are told with the true history: every change once, in order, without gaps, also
across disconnects; 410 and a new list are the only way out.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

import msgspec

from dralloc.client.transport import ClientRequest, Transport, TransportError
from tests.simulator.history import CommittedChange, PrefixLog, StoreHistory

PAGE_SIZE: Final = 7
TIMEOUT_S: Final = 120
TYPES: Final = {"ADDED", "MODIFIED", "DELETED"}


class WatchViolation(Exception):
    """An event is missing, repeated, misplaced or wrong."""


class WatchObserver:
    """Lists and watches one resource. `path` is its URL, `prefix` that of its keys."""

    def __init__(self, transport: Transport, random: Random, history: StoreHistory, path: str, prefix: str) -> None:
        self._transport = transport
        self._random = random
        self._history = history
        self._path = path
        self._prefix = prefix
        self.violations: list[str] = []
        # Where it is: an epoch of the history, its changes, the number of them that were delivered, and their revision.
        self._epoch = 0
        self._log = PrefixLog()
        self._place = 0
        self._revision = ""

    async def run(self) -> None:
        while True:
            try:
                if not self._revision:
                    await self._list()
                await self._watch()
            except TransportError:
                pass
            except WatchViolation as violation:
                self.violations.append(f"watch of {self._path}: {violation}")
                return
            await asyncio.sleep(self._random.random())

    def due(self) -> int:
        """The number of changes that it is to be told, of those until now."""
        return len(self._history.log_of(self._prefix).changes)

    def missed(self, due: int) -> str | None:
        """What an observer of a cluster without faults has not been told some time after so many changes."""
        if self._epoch != self._history.epoch or self._place < due:
            return f"watch of {self._path}: at revision {self._revision}, and does not get later changes"
        return None

    # --- list ---------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        epoch, started = self._history.epoch, self._history.revision
        items: list[Any] = []
        query = {"limit": str(PAGE_SIZE)} if self._random.random() < 0.5 else {}
        while True:
            response = await self._transport.send(ClientRequest(method="GET", path=self._path, query=query))
            if response.status != 200:
                raise TransportError(f"list: {response.status}")
            document = msgspec.json.decode(response.body)
            items += document["items"]
            if not (token := document["metadata"].get("continue")):
                break
            query = {"limit": str(PAGE_SIZE), "continue": token}
        if epoch != self._history.epoch:
            raise TransportError("the store was restored during the list")
        revision = int(document["metadata"]["resourceVersion"])
        if not started <= revision <= self._history.revision:
            raise WatchViolation(f"a list is of revision {revision}; the revision was {started} before the request")
        self._compare(items, revision)
        self._epoch, self._log = epoch, self._history.log_of(self._prefix)
        self._place, self._revision = self._log.place_after(revision), str(revision)

    def _compare(self, items: list[Any], revision: int) -> None:
        listed = {self._key(item["metadata"]): int(item["metadata"]["resourceVersion"]) for item in items}
        expected = self._history.state_at(self._prefix, revision)
        if listed != expected:
            different = sorted(dict(listed.items() ^ expected.items()))
            raise WatchViolation(f"a list at revision {revision} is wrong about {', '.join(different[:3])}")
        if len(listed) != len(items):
            raise WatchViolation(f"a list at revision {revision} has an object twice")

    # --- watch --------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        query = {
            "watch": "1",
            "resourceVersion": self._revision,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._random.randint(1, TIMEOUT_S)),
        }
        async with self._transport.stream(ClientRequest(method="GET", path=self._path, query=query)) as stream:
            if stream.status != 200:
                if stream.status in (400, 410, 504):
                    self._revision = ""
                return
            rest = b""
            async for piece in stream.pieces():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if not self._take(msgspec.json.decode(line)):
                        return

    def _take(self, event: dict[str, Any]) -> bool:
        """False if everything must be listed again."""
        document = event["object"]
        if event["type"] == "ERROR":
            if document.get("code") in (410, 504):
                self._revision = ""
            return False
        revision = int(document["metadata"]["resourceVersion"])
        # Until the server knows of a restore, changes from before may still arrive.
        if self._history.epoch_of(revision) != self._epoch:
            raise WatchViolation(
                f"resumed at revision {self._revision} of the time before a restore, and continued at {revision}"
            )
        if event["type"] == "BOOKMARK":
            if self._place < self._log.place_after(revision):
                raise WatchViolation(f"a bookmark at {revision} before {_title(self._log.changes[self._place])}")
        else:
            self._take_change(event["type"], self._key(document["metadata"]), revision)
        self._revision = str(revision)
        return True

    def _take_change(self, type_: str, key: str, revision: int) -> None:
        told = f"{type_} {key} at {revision}"
        if type_ not in TYPES:
            raise WatchViolation(f"unknown type: {told}")
        if self._place >= len(self._log.changes):
            raise WatchViolation(f"{told}, which never happened or was told before")
        change = self._log.changes[self._place]
        if told != _title(change):
            raise WatchViolation(f"{told}; the next change is {_title(change)}")
        self._place += 1

    def _key(self, metadata: dict[str, Any]) -> str:
        namespace = metadata.get("namespace")
        return f"{self._prefix}{namespace}/{metadata['name']}" if namespace else self._prefix + str(metadata["name"])


def _title(change: CommittedChange) -> str:
    type_ = "DELETED" if change.value is None else "MODIFIED" if change.previous else "ADDED"
    return f"{type_} {change.key} at {change.revision}"
