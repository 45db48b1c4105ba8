"""All stores against a trivial model: the list of everything that was ever written."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule, run_state_machine_as_test

from dralloc.server.store.errors import Compacted, StoreError
from dralloc.server.store.interface import FIRST_REVISION, Page, PageToken, Store, Watch
from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.store.store_url import open_store
from tests.support.etcd_server import EtcdServer


@dataclass(frozen=True)
class Wish:
    """A key to create, update (if it exists) or delete; or to try with a wrong revision."""

    key: str
    value: bytes | None
    mistaken: bool


KEYS = ["/a", "/a/1", "/a/2", "/a/é", "/b/1"]
PREFIXES = ["", "/a", "/a/", "/a/1", "/b/", "/none/and/longer/than/any/key"]

keys = st.sampled_from(KEYS)
prefixes = st.sampled_from(PREFIXES)
wishes = st.builds(
    Wish, key=keys, value=st.none() | st.binary(max_size=3), mistaken=st.sampled_from([False] * 5 + [True])
)
back = st.sampled_from([*([0] * 5), *range(-1, 10)])
"""How many revisions ago; -1 is a future one."""


@dataclass
class Model:
    """Every write in order; a state is the result of the writes up to a revision."""

    writes: list[tuple[str, bytes | None]] = field(default_factory=list)
    compacted: int = FIRST_REVISION

    @property
    def revision(self) -> int:
        return FIRST_REVISION + len(self.writes)

    def state(self, revision: int) -> dict[str, Record]:
        records: dict[str, Record] = {}
        for number, (key, value) in enumerate(self.writes[: revision - FIRST_REVISION], start=FIRST_REVISION + 1):
            if value is None:
                del records[key]
            else:
                records[key] = Record(key=key, value=value, revision=number)
        return records

    def write(self, key: str, value: bytes | None, expected: int) -> Any:
        current = self.state(self.revision).get(key)
        if (current.revision if current else 0) != expected:
            return "RevisionConflict" if expected else "KeyExists"
        self.writes.append((key, value))
        return self.revision

    def page(self, prefix: str, revision: int, limit: int, start_after: str | None) -> Any:
        if revision > self.revision:
            return "FutureRevision"
        if revision < self.compacted:
            return "Compacted"
        state = self.state(revision)
        matching = sorted(key for key in state if key.startswith(prefix))
        if start_after is not None:
            matching = [key for key in matching if key > prefix + start_after]
        return [state[key] for key in matching[:limit]], revision, max(0, len(matching) - limit)

    def events(self, prefix: str, after: int) -> list[StoreEvent]:
        found = []
        for revision in range(after + 1, self.revision + 1):
            key = self.writes[revision - FIRST_REVISION - 1][0]
            if key.startswith(prefix):
                record, previous = self.state(revision).get(key), self.state(revision - 1).get(key)
                found.append(StoreEvent(revision=revision, key=key, record=record, previous=previous))
        return found


@dataclass
class Subject:
    """One store under test. Its revisions are normalized, because etcd's may start anywhere."""

    url: str
    store: Store
    offset: int

    async def write(self, key: str, value: bytes | None, expected: int) -> int:
        if expected == 0:
            assert value is not None
            return (await self.store.create(key, value)).revision - self.offset
        at = expected + self.offset
        if value is None:
            return await self.store.delete(key, expected_revision=at) - self.offset
        return (await self.store.update(key, value, expected_revision=at)).revision - self.offset

    def record(self, record: Record | None) -> Record | None:
        return record and Record(key=record.key, value=record.value, revision=record.revision - self.offset)

    def event(self, event: StoreEvent) -> StoreEvent:
        record, previous = self.record(event.record), self.record(event.previous)
        return StoreEvent(revision=event.revision - self.offset, key=event.key, record=record, previous=previous)

    def page(self, page: Page) -> Any:
        return [self.record(record) for record in page.records], page.revision - self.offset, page.remaining

    def token(self, token: PageToken) -> PageToken:
        revision = token.revision + self.offset
        return PageToken(revision=revision, start_after=token.start_after, remaining=token.remaining)


@dataclass
class Watching:
    """One watch on every store, where they began, and their position in the model."""

    prefix: str
    begun: int
    after: int
    watches: list[Watch]


@dataclass(frozen=True)
class NextPage:
    prefix: str
    token: PageToken


class StoresAgree(RuleBasedStateMachine):
    """After any sequence of operations, every store answers like the model."""

    patience_s: ClassVar[float] = 0
    """How long an event may take to reach a watch after its write was acknowledged."""
    begins_late: ClassVar[bool] = False
    """True if a watch may still be behind when a compaction overtakes it, although nothing happened since it began: etcd looks for
    watches that are behind ten times a second, and later on a busy machine.
    """
    next_pages: Bundle[NextPage] = Bundle("next_pages")

    def urls(self, directory: Path) -> Sequence[str]:
        return "memory://", f"sqlite://{directory}/store.db?synchronous=normal"

    @initialize()
    def open_stores(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.watching: list[Watching] = []
        self.subjects = [self.opened(url) for url in self.urls(Path(self.directory.name))]

    def opened(self, url: str) -> Subject:
        store = self.runner.run(open_store(url))
        return Subject(url, store, self.runner.run(store.current_revision()) - self.model.revision)

    def teardown(self) -> None:
        if not hasattr(self, "subjects"):
            return
        try:
            self.read_watches()
        finally:
            for subject in self.subjects:
                self.runner.run(subject.store.close())
            self.runner.close()
            self.directory.cleanup()

    def ask(self, subject: Subject, question: Callable[[Subject], Awaitable[Any]]) -> Any:
        async def answer() -> Any:
            try:
                return await question(subject)
            except StoreError as error:
                return type(error).__name__

        return self.runner.run(answer())

    @rule(wishes=st.lists(wishes, min_size=1, max_size=6))
    def write(self, wishes: Sequence[Wish]) -> None:
        for wish in wishes:
            current = self.model.state(self.model.revision).get(wish.key)
            actual = current.revision if current else 0
            expected = actual + self.model.revision if wish.mistaken else actual
            if wish.value is None and not expected:
                continue
            want = self.model.write(wish.key, wish.value, expected)
            write = partial(Subject.write, key=wish.key, value=wish.value, expected=expected)
            assert [self.ask(subject, write) for subject in self.subjects] == [want] * len(self.subjects)

    @rule(key=keys)
    def get(self, key: str) -> None:
        async def question(subject: Subject) -> Record | None:
            return subject.record(await subject.store.get(key))

        want = self.model.state(self.model.revision).get(key)
        assert [self.ask(subject, question) for subject in self.subjects] == [want] * len(self.subjects)

    @rule(target=next_pages, prefix=prefixes, ago=back, limit=st.integers(1, 4))
    def list_first_page(self, prefix: str, ago: int, limit: int) -> Any:
        revision = max(FIRST_REVISION, self.model.revision - ago)

        async def question(subject: Subject) -> Any:
            at = None if ago == 0 else revision + subject.offset
            return subject.page(await subject.store.list_prefix(prefix, revision=at, limit=limit))

        want = self.model.page(prefix, revision, limit, None)
        assert [self.ask(subject, question) for subject in self.subjects] == [want] * len(self.subjects)
        return self.following(prefix, want)

    @rule(target=next_pages, page=next_pages, limit=st.integers(1, 4))
    def list_next_page(self, page: NextPage, limit: int) -> Any:
        async def question(subject: Subject) -> Any:
            return subject.page(
                await subject.store.list_prefix(page.prefix, limit=limit, page=subject.token(page.token))
            )

        want = self.model.page(page.prefix, page.token.revision, limit, page.token.start_after)
        assert [self.ask(subject, question) for subject in self.subjects] == [want] * len(self.subjects)
        return self.following(page.prefix, want)

    def following(self, prefix: str, answer: Any) -> Any:
        if isinstance(answer, str) or not answer[2]:
            return multiple()
        records, revision, remaining = answer
        start_after = records[-1].key[len(prefix) :]
        return NextPage(prefix, PageToken(revision=revision, start_after=start_after, remaining=remaining))

    @rule(prefix=prefixes, ago=back)
    def watch(self, prefix: str, ago: int) -> None:
        after = max(FIRST_REVISION, self.model.revision - ago)

        async def question(subject: Subject) -> Watch:
            return await subject.store.watch(prefix, after_revision=after + subject.offset)

        answers = [self.ask(subject, question) for subject in self.subjects]
        if after < self.model.compacted:
            assert answers == ["Compacted"] * len(self.subjects)
        elif after > self.model.revision:
            assert answers == ["FutureRevision"] * len(self.subjects)
        else:
            self.watching.append(Watching(prefix, after, after, answers))

    @rule()
    def read_watches(self) -> None:
        self.watching = [watching for watching in self.watching if self.goes_on(watching)]

    def goes_on(self, watching: Watching) -> bool:
        """Compares the next events. A watch misses none; false if it was told that it cannot have them."""
        want = self.model.events(watching.prefix, watching.after)
        for subject, watch in zip(self.subjects, watching.watches, strict=True):
            try:
                got = self.runner.run(read(watch, len(want), self.patience_s))
            except Compacted:
                assert self.begins_late
                assert watching.begun < self.model.compacted
                return False
            assert [subject.event(event) for event in got] == want
        watching.after = max(watching.after, self.model.revision)
        return True

    @rule(ago=back)
    def compact(self, ago: int) -> None:
        revision = max(FIRST_REVISION, self.model.revision - ago)

        async def question(subject: Subject) -> None:
            await subject.store.compact(revision + subject.offset)

        self.read_watches()
        want = "FutureRevision" if revision > self.model.revision else None
        assert [self.ask(subject, question) for subject in self.subjects] == [want] * len(self.subjects)
        if want is None:
            self.model.compacted = max(self.model.compacted, revision)

    @rule()
    def open_again(self) -> None:
        self.read_watches()
        for number, subject in enumerate(self.subjects):
            if subject.url.startswith("memory"):
                continue
            self.runner.run(subject.store.close())
            self.subjects[number] = reopened = self.opened(subject.url)
            assert reopened.offset == subject.offset
            for watching in self.watching:
                watching.begun = watching.after
                again = reopened.store.watch(watching.prefix, after_revision=watching.after + reopened.offset)
                watching.watches[number] = self.runner.run(again)


async def read(watch: Watch, count: int, patience_s: float) -> list[StoreEvent]:
    events = list(await watch.next(timeout_s=0))
    while len(events) < count:
        more = await watch.next(timeout_s=patience_s)
        assert more, f"only {events}"
        events.extend(more)
    return events


@pytest.mark.slow
@pytest.mark.fuzz
def test_memory_and_sqlite_agree_with_the_model() -> None:
    run_state_machine_as_test(StoresAgree, settings=settings(stateful_step_count=30))


@pytest.mark.slow
def test_etcd_agrees_with_the_others(etcd_server: EtcdServer) -> None:
    roots = itertools.count()

    class AllStoresAgree(StoresAgree):
        patience_s = 60.0
        begins_late = True

        def urls(self, directory: Path) -> Sequence[str]:
            return *super().urls(directory), etcd_server.url(f"/machine-{next(roots)}")

    run_state_machine_as_test(AllStoresAgree, settings=settings(max_examples=15, stateful_step_count=25))
