"""Gives every namespace the service account `default`, also after it was deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Self

from dralloc.kube.registry import NAMESPACE, SERVICE_ACCOUNT
from dralloc.primitives.errors import Forbidden, NotFound
from dralloc.server.read.api_resources import name_of, namespace_of, prefix_of
from dralloc.server.read.background_task import ChangeLoop
from dralloc.server.read.store_view import RecordIndex, StoreView
from dralloc.server.read.stored_form import read_metadata
from dralloc.server.store.errors import FenceMoved
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record
from dralloc.server.write.writer import Writer

DEFAULT: Final = "default"


class DefaultAccounts:
    """Follows namespaces and service accounts from `start` on."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._writer = writer
        self._loop = ChangeLoop(self._create_missing, does="create default service accounts")
        wake = self._loop.wake
        self._namespaces = StoreView(store, (prefix_of(NAMESPACE),), lambda: _Names(_active_namespace, wake))
        self._accounts = StoreView(store, (prefix_of(SERVICE_ACCOUNT),), lambda: _Names(_namespace_of_default, wake))

    async def start(self) -> None:
        """Create what is missing, then go on in the background."""
        await self._create_missing()
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        for view in (self._namespaces, self._accounts):
            await view.stop()

    async def _create_missing(self) -> None:
        await self._namespaces.ready()
        await self._accounts.ready()
        for namespace in sorted(self._namespaces.index.names - self._accounts.index.names):
            document = {"metadata": {"namespace": namespace}}
            try:
                found = await self._writer.namespaces.find_open(SERVICE_ACCOUNT, namespace)
                await self._writer.create_initial(SERVICE_ACCOUNT, DEFAULT, document, namespace=namespace, found=found)
            except (NotFound, Forbidden):
                # It has gone while others got their account.
                continue
            except FenceMoved:
                self._loop.wake()


class _Names(RecordIndex):
    """The names that records of one kind stand for."""

    def __init__(self, name_for: Callable[[str, Record], str | None], changed: Callable[[], None]) -> None:
        self.names: set[str] = set()
        self._by_key: dict[str, str] = {}
        self._name_for = name_for
        self._changed = changed

    def replace(self, earlier: Self, revision: int) -> None:
        super().replace(earlier, revision)
        self._changed()

    def _put(self, key: str, record: Record | None) -> None:
        before = self._by_key.pop(key, None)
        after = self._name_for(key, record) if record is not None else None
        if after is not None:
            self._by_key[key] = after
            self.names.add(after)
        if before != after:
            if before is not None:
                self.names.discard(before)
            self._changed()


def _active_namespace(key: str, record: Record) -> str | None:
    return None if read_metadata(record.value).deletion_timestamp else name_of(key)


def _namespace_of_default(key: str, record: Record) -> str | None:  # noqa: ARG001
    return namespace_of(SERVICE_ACCOUNT, key) if name_of(key) == DEFAULT else None
