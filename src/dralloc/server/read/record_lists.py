"""Lists of records: selection, revision and pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from dralloc.primitives.errors import BadRequest
from dralloc.server.http.query_options import EXACT, ListOptions, revision_of
from dralloc.server.http.statuses import expired, version_too_large
from dralloc.server.store.errors import BadPageToken, Compacted, FutureRevision
from dralloc.server.store.interface import Page, PageToken, Store
from dralloc.server.store.records import Record

T = TypeVar("T")

# Records that are read at once; other tasks run in between.
RECORDS_PER_READ: Final = 500
# The size of a piece, in bytes because objects differ in size by a factor of a thousand.
PIECE_BYTES: Final = 1 << 18
# The longest wait for a revision that this server has not seen yet.
FUTURE_WAIT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records of a collection match."""

    matches: Callable[[Record], bool]
    everything: bool = False


EVERYTHING: Final = Selection(matches=lambda _: True, everything=True)


@dataclass(frozen=True, slots=True)
class RecordList:
    """Records at one revision; `next` continues the list."""

    records: Sequence[Record]
    revision: int
    next: PageToken | None = None
    # Known only without a selector.
    remaining: int | None = None


async def list_records(store: Store, prefix: str, selection: Selection, options: ListOptions) -> RecordList:
    """The records that the options select."""
    token, revision = await _place(store, options)
    try:
        if selection.everything:
            return await _plain(store, prefix, token, revision, options.limit)
        return await _selected(store, prefix, selection, token, revision, options.limit)
    except Compacted:
        raise expired(
            "The provided continue parameter is too old to display a consistent list result. "
            "You can start a new list without the continue parameter."
            if token
            else f"The resourceVersion for the provided list is too old: {options.resource_version}"
        ) from None
    except FutureRevision as error:
        raise version_too_large(error.revision, error.current or await store.current_revision()) from None


async def _place(store: Store, options: ListOptions) -> tuple[PageToken | None, int | None]:
    """Where the list starts: after an earlier page, at an exact revision, or at the current one."""
    if options.continue_token:
        if options.resource_version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        try:
            return PageToken.decode(options.continue_token), None
        except BadPageToken:
            raise BadRequest("continue key is not valid") from None
    revision = revision_of(options.resource_version)
    # Kubernetes reads at exactly the revision when a limit and no match rule is given.
    if revision and (options.resource_version_match == EXACT or (options.limit and not options.resource_version_match)):
        return None, revision
    if revision:
        await wait_for_revision(store, revision)
    return None, None


async def wait_for_revision(store: Store, revision: int) -> None:
    """Wait until this server has seen the revision, which another server may have written."""
    current = await store.current_revision()
    if current >= revision:
        return
    with await store.watch("", after_revision=current) as watch:
        try:
            async with asyncio.timeout(FUTURE_WAIT_S):
                while watch.revision < revision:
                    await watch.next()
        except TimeoutError:
            raise version_too_large(revision, await store.current_revision()) from None


def in_pieces(records: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """The records in groups of about `PIECE_BYTES`."""
    group: list[T] = []
    total = 0
    for record in records:
        group.append(record)
        total += size(record)
        if total >= PIECE_BYTES:
            yield group
            group, total = [], 0
    if group:
        yield group


async def read_all(
    store: Store, prefix: str, *, revision: int | None = None, token: PageToken | None = None
) -> tuple[list[Record], int]:
    """Every record under a prefix at one revision. Yields between reads, so that other tasks run."""
    records: list[Record] = []
    while True:
        page = await store.list_prefix(prefix, revision=revision, limit=RECORDS_PER_READ, page=token)
        records.extend(page.records)
        token = page.next
        if token is None:
            return records, page.revision
        await asyncio.sleep(0)


async def _plain(store: Store, prefix: str, token: PageToken | None, revision: int | None, limit: int) -> RecordList:
    if not limit:
        return RecordList(*await read_all(store, prefix, revision=revision, token=token))
    page = await store.list_prefix(prefix, revision=revision, limit=limit, page=token)
    return RecordList(page.records, page.revision, page.next, page.remaining)


async def _selected(
    store: Store, prefix: str, selection: Selection, token: PageToken | None, revision: int | None, limit: int
) -> RecordList:
    found: list[Record] = []
    while True:
        page = await store.list_prefix(prefix, revision=revision, limit=RECORDS_PER_READ, page=token)
        size = 0
        for place, record in enumerate(page.records):
            if selection.matches(record):
                found.append(record)
                if len(found) == limit:
                    return RecordList(found, page.revision, _token_after(prefix, page, place))
            size += len(record.value)
            if size > PIECE_BYTES:
                await asyncio.sleep(0)
                size = 0
        token = page.next
        if token is None:
            return RecordList(found, page.revision)
        await asyncio.sleep(0)


def _token_after(prefix: str, page: Page, place: int) -> PageToken | None:
    left = len(page.records) - 1 - place
    if not left:
        return page.next
    return PageToken(
        revision=page.revision, start_after=page.records[place].key[len(prefix) :], remaining=left + page.remaining
    )
