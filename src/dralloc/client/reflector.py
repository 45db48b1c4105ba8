"""Keeps an informer in sync with the server: lists once, then watches, and resumes after disconnects.

A watch that ends is resumed at the last seen revision. Only if the server does not have that revision (no longer, or not
yet) is everything listed again. Nothing is missed or repeated, because the watch starts at the list's revision.
A list of another history of the store, after a restored backup, ends the reflector before the informer takes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic

from dralloc.client.api_calls import ApiCalls, WatchEvent
from dralloc.client.informer import Informer
from dralloc.client.status_errors import LIST_AGAIN
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import Object, ObjectKey, TypedResource, key_of
from dralloc.client.unreadable_objects import UnreadableObject, report_unreadable
from dralloc.client.work_queue import Backoff
from dralloc.primitives.errors import ApiError

_logger = logging.getLogger(__name__)

RECONNECT: Final = Backoff(first_s=0.1, most_s=10.0)
PAGE_SIZE: Final = 500
WATCH_TIMEOUT_S: Final = 300
SHORT_WATCH_S: Final = 1.0


def log_problem(resource: TypedResource[Any], problem: Exception) -> None:
    """Logs why a component cannot watch its objects; until then it is idle."""
    level = logging.INFO if isinstance(problem, LIST_AGAIN) else logging.WARNING
    _logger.log(level, "cannot watch %s: %s", resource.plural, problem)


class Reflector(Generic[Object]):
    """Reflects one resource (or the part that the selectors match) into one informer.

    `since` is a revision that was seen before the first list, as of something that was written.
    """

    def __init__(
        self,
        calls: ApiCalls,
        resource: TypedResource[Object],
        informer: Informer[Object],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        on_problem: Callable[[Exception], None] = lambda _: None,
        since: int = 0,
    ) -> None:
        self._calls = calls
        self._resource = resource
        self._informer = informer
        self._namespace = namespace
        self._field_selector = field_selector
        self._label_selector = label_selector
        self._on_problem = on_problem
        self._revision: str | None = None
        # Of the newest list or event, as a number.
        self._seen = since
        # True until the server accepts the revision of the newest list.
        self._just_listed = False
        self._failures = 0

    async def run(self) -> None:
        """Reflects until cancelled. Raises HistoryChanged."""
        while True:
            try:
                if self._revision is None:
                    await self._list()
                was_useful = await self._watch()
                self._just_listed = False
                if was_useful:
                    self._failures = 0
                else:
                    await self._pause()
            except LIST_AGAIN as error:
                self._on_problem(error)
                # At once, unless a list did not help.
                has_listed, self._revision = self._revision is None or self._just_listed, None
                if has_listed:
                    await self._pause()
            except (ApiError, TransportError) as error:
                self._on_problem(error)
                await self._pause()

    async def _pause(self) -> None:
        self._failures += 1
        await asyncio.sleep(RECONNECT.delay_s(self._failures))

    async def _list(self) -> None:
        unreadable: list[UnreadableObject] = []
        listed, revision = await self._calls.list_all(
            self._resource,
            on_unreadable=unreadable.append,
            namespace=self._namespace,
            page_size=PAGE_SIZE,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
        )
        # Objects that are known already are freed one after the other, not all in one step.
        items = deque(listed)
        del listed
        listed_at = int(revision) if revision.isdecimal() else 0
        self._calls.history.check(listed_at, seen=self._seen)
        self._informer.newest_revision = listed_at
        await self._informer.take_list(
            (items.popleft() for _ in range(len(items))),
            revision=listed_at,
            kept=[ObjectKey(problem.namespace, problem.name) for problem in unreadable],
        )
        for problem in unreadable:
            report_unreadable(problem)
        self._revision, self._seen, self._just_listed = revision, listed_at, True

    async def _watch(self) -> bool:
        """Returns true if the watch was useful: a server that ends watches immediately is shutting down, and needs a
        back-off.
        """
        assert self._revision is not None
        began_at, before = asyncio.get_running_loop().time(), self._revision
        async for event in self._calls.watch(
            self._resource,
            resource_version=self._revision,
            namespace=self._namespace,
            timeout_s=WATCH_TIMEOUT_S,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
        ):
            self._take(event)
            self._failures, self._just_listed = 0, False
        return self._revision != before or asyncio.get_running_loop().time() - began_at > SHORT_WATCH_S

    def _take(self, event: WatchEvent[Object]) -> None:
        if event.type == "DELETED":
            self._informer.remove(key_of(event.object))
        elif event.unreadable is not None:
            # What was known of it is better than nothing: it may be a claim that has devices.
            report_unreadable(event.unreadable)
        elif event.type in ("ADDED", "MODIFIED"):
            self._informer.put(event.object)
        # Advance only after the change is applied: a cancellation in between repeats the event, which is a no-op, and
        # loses none.
        self._revision = event.object.metadata.resource_version
        if self._revision.isdecimal():
            self._seen = int(self._revision)
            self._informer.newest_revision = self._seen
            self._calls.history.reach(self._seen)
