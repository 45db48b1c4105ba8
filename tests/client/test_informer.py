"""The informer stays in sync with the server through disconnects, and reports each change once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random

import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.informer import TAKEN_AT_ONCE, HistoryChanged, Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, TransportError
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.codec import encode
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import DeviceClass
from dralloc.server.store.interface import HistoryLimits
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.simulator.network import Faults
from tests.support.api_server import TOKEN, api_application
from tests.support.faulty_transport import FaultyTransport

CLASSES = resource_for(DeviceClass)
HARSH = Faults(lose_request=0.2, lose_answer=0.1, break_stream=0.3)


def revised(name: str, revision: str, uid: str = "u", **labels: str) -> DeviceClass:
    return DeviceClass(metadata=ObjectMeta(name=name, resource_version=revision, uid=uid, labels=labels))


class Journal:
    """The calls of a handler, and the state of the cluster derived from them alone."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.world: dict[str, DeviceClass] = {}

    def __call__(self, before: DeviceClass | None, after: DeviceClass | None) -> None:
        known = after or before
        assert known is not None
        name = known.metadata.name
        assert self.world.get(name) == before, "what changes is what was told before"
        if after is None:
            del self.world[name]
            self.lines.append(f"- {name}")
        else:
            self.world[name] = after
            self.lines.append(f"{'+' if before is None else '~'} {name}")


def test_an_index_may_return_a_value_twice() -> None:
    informer: Informer[DeviceClass] = Informer({"label": lambda item: [*item.metadata.labels.values()]})
    informer.put(revised("a", "1", x="same", y="same"))
    assert [item.metadata.name for item in informer.by("label", "same")] == ["a"]
    informer.put(revised("a", "2", x="other"))
    assert not informer.by("label", "same")
    informer.remove(ObjectKey("", "a"))
    assert not informer.by("label", "other")


def test_an_unchanged_list_causes_no_events() -> None:
    journal = Journal()
    informer: Informer[DeviceClass] = Informer()
    informer.subscribe(journal)
    informer.replace([revised("a", "1"), revised("b", "2")])
    informer.replace([revised("a", "1"), revised("b", "3")])
    assert journal.lines == ["+ a", "+ b", "~ b"]


def test_an_object_missing_from_a_list_is_a_deletion() -> None:
    journal = Journal()
    informer: Informer[DeviceClass] = Informer()
    informer.subscribe(journal)
    informer.replace([revised("a", "1")])
    informer.replace([])
    informer.remove(ObjectKey("", "a"))
    assert journal.lines == ["+ a", "- a"]


def test_a_recreated_object_is_a_deletion_and_an_addition() -> None:
    journal = Journal()
    informer: Informer[DeviceClass] = Informer()
    informer.subscribe(journal)
    informer.replace([revised("a", "1", uid="first")])
    informer.replace([revised("a", "9", uid="second")])
    assert journal.lines == ["+ a", "- a", "+ a"]


def test_other_tasks_run_while_a_long_first_list_is_taken() -> None:
    count = 2 * TAKEN_AT_ONCE + 1
    listed = {
        "metadata": {"resourceVersion": str(count)},
        "items": [{"metadata": {"name": f"c-{each}", "uid": "u", "resourceVersion": "1"}} for each in range(count)],
    }

    class Listing:
        async def send(self, request: ClientRequest) -> ClientResponse:
            return ClientResponse(status=200, body=encode(listed))

        def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
            raise TransportError("no watches here")

        async def close(self) -> None: ...

    async def main() -> set[tuple[int, bool]]:
        informer: Informer[DeviceClass] = Informer()
        reflecting = asyncio.ensure_future(Reflector(ApiCalls(Listing()), CLASSES, informer).run())
        seen: set[tuple[int, bool]] = set()
        while not informer.synced.is_set():
            await asyncio.sleep(0)
            seen.add((len(informer), informer.synced.is_set()))
        reflecting.cancel()
        await asyncio.gather(reflecting, return_exceptions=True)
        return seen

    assert asyncio.run(main()) >= {(TAKEN_AT_ONCE, False), (2 * TAKEN_AT_ONCE, False), (count, True)}


def test_what_a_later_list_changes_is_found_in_pieces_and_changed_at_once() -> None:
    count = 2 * TAKEN_AT_ONCE + 1
    names = [f"c-{each}" for each in range(count)]

    async def main() -> list[tuple[bool, str]]:
        informer: Informer[DeviceClass] = Informer()
        journal = Journal()
        await informer.take_list([revised(name, "1") for name in names])
        informer.subscribe(journal)
        journal.lines.clear()
        lists: list[int] = []
        informer.subscribe_to_lists(lists.append)
        later = [revised(name, "2" if name == "c-3" else "1") for name in names[1:]]
        taking = asyncio.ensure_future(informer.take_list([*later, revised("new", "3")], revision=7))
        seen: list[tuple[bool, str]] = []
        while not taking.done():
            await asyncio.sleep(0)
            seen.append((bool(lists), " ".join(journal.lines)))
        return seen

    seen = asyncio.run(main())
    assert seen[-1] == (True, "- c-0 ~ c-3 + new")
    assert seen.count((False, "")) == 4
    assert set(seen) == {(False, ""), seen[-1]}


def test_a_late_subscriber_gets_existing_objects() -> None:
    informer: Informer[DeviceClass] = Informer()
    informer.put(revised("a", "1"))
    journal = Journal()
    informer.subscribe(journal)
    assert journal.lines == ["+ a"]


def test_indexes_follow_changes() -> None:
    informer: Informer[DeviceClass] = Informer({"tier": lambda item: item.metadata.labels.values()})
    informer.put(revised("a", "1", tier="fast"))
    informer.put(revised("b", "2", tier="fast"))
    informer.put(revised("a", "3", tier="slow"))
    assert [item.metadata.name for item in informer.by("tier", "fast")] == ["b"]
    assert [item.metadata.name for item in informer.by("tier", "slow")] == ["a"]
    informer.remove(ObjectKey("", "b"))
    assert not informer.by("tier", "fast")


@pytest.mark.parametrize("seed", range(12))
def test_the_cache_converges_through_disconnects_and_compactions(seed: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        clock = VirtualClock(asyncio.get_running_loop())
        # A short history, so that a broken watch often resumes too late and has to list again.
        limits = HistoryLimits(events_max=8) if seed % 2 else None
        async with api_application(clock=clock, limits=limits) as application:
            client = AsyncClient(InProcessTransport(application, token=TOKEN))
            faulty = FaultyTransport(InProcessTransport(application, token=TOKEN), random, HARSH)
            informer: Informer[DeviceClass] = Informer()
            journal = Journal()
            informer.subscribe(journal)
            reflecting = asyncio.ensure_future(Reflector(ApiCalls(faulty), CLASSES, informer).run())
            await change_at_random(client, random)
            faulty.faults = Faults()
            await until(lambda: informer.synced.is_set() and len(informer) == len(journal.world))
            expected = {item.metadata.name: item.metadata for item in await client.list(DeviceClass)}
            await until(lambda: {name: item.metadata for name, item in journal.world.items()} == expected)
            reflecting.cancel()
            await asyncio.gather(reflecting, return_exceptions=True)

    run_virtual(scenario())


async def change_at_random(client: AsyncClient, random: Random) -> None:
    for step in range(120):
        name = f"c{random.randrange(6)}"
        existing = {item.metadata.name for item in await client.list(DeviceClass)}
        if name not in existing:
            await client.create(DeviceClass(metadata=ObjectMeta(name=name)))
        elif random.random() < 0.4:
            await client.delete(DeviceClass, name)
        else:
            await client.patch(DeviceClass, name, {"metadata": {"labels": {"step": str(step)}}})
        await asyncio.sleep(random.choice((0, 0, 0.05, 3)))


async def until(condition: Callable[[], bool]) -> None:
    """Advances virtual time until the condition holds; fails after a minute."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


class Switch(InProcessTransport):
    """A server that is replaced by another one."""

    def become(self, other: InProcessTransport) -> None:
        self.__dict__ = other.__dict__


@pytest.mark.parametrize("later", [2, 600], ids=["revision is behind", "revision has caught up and is compacted"])
def test_another_server_is_listed_at_once(later: int) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        limits = HistoryLimits(events_max=8)
        async with api_application(clock=clock) as before, api_application(clock=clock, limits=limits) as after:
            transport, other = Switch(before, token=TOKEN), InProcessTransport(after, token=TOKEN)
            informer: Informer[DeviceClass] = Informer()
            reflecting = asyncio.ensure_future(Reflector(ApiCalls(transport), CLASSES, informer).run())
            for number in range(100):
                await AsyncClient(transport).create(DeviceClass(metadata=ObjectMeta(name=f"before-{number}")))
            await until(lambda: len(informer) == 100)
            await asyncio.sleep(10)
            for number in range(later):
                await AsyncClient(other).create(DeviceClass(metadata=ObjectMeta(name=f"after-{number}")))
            began = clock.now()
            transport.become(other)
            before.end_streams()
            names = {f"after-{number}" for number in range(later)}
            await until(lambda: reflecting.done() or {item.metadata.name for item in informer.all()} == names)
            # Without a back-off; `until` looks every 50 ms.
            assert (clock.now() - began).total_seconds() <= 0.05
            reflecting.cancel()
            (outcome,) = await asyncio.gather(reflecting, return_exceptions=True)
            # Revisions that went back outdate everything that is known; what another history has is not mixed with it.
            assert isinstance(outcome, HistoryChanged) == (later == 2)
            assert len(informer) == (100 if later == 2 else later)

    run_virtual(main())


@pytest.mark.parametrize("refused", ["list", "watch"])
def test_lists_that_do_not_help_are_repeated_with_back_off(refused: str) -> None:
    gone = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}'

    class Refusing(InProcessTransport):
        requests = 0

        async def send(self, request: ClientRequest) -> ClientResponse:
            self.requests += 1
            return ClientResponse(status=410, body=gone) if refused == "list" else await super().send(request)

        @asynccontextmanager
        async def stream(self, request: ClientRequest) -> AsyncIterator[Stream]:
            async with super().stream(ClientRequest(method="GET", path="/nowhere")) as stream:
                stream.status, stream.pieces = 410, lambda: one_piece(gone)  # type: ignore[misc, method-assign]
                yield stream

    async def main() -> int:
        async with api_application(clock=VirtualClock(asyncio.get_running_loop())) as application:
            transport = Refusing(application, token=TOKEN)
            reflecting = asyncio.ensure_future(Reflector(ApiCalls(transport), CLASSES, Informer()).run())
            await asyncio.sleep(60)
            reflecting.cancel()
            await asyncio.gather(reflecting, return_exceptions=True)
        return transport.requests

    assert 2 < run_virtual(main()) < 20


async def one_piece(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


def test_watches_that_end_at_once_are_retried_with_back_off() -> None:
    async def main() -> int:
        requests = 0

        class Counting(InProcessTransport):
            @asynccontextmanager
            async def stream(self, request: ClientRequest) -> AsyncIterator[Stream]:
                nonlocal requests
                requests += 1
                async with super().stream(request) as stream:
                    yield stream

        async with api_application(clock=VirtualClock(asyncio.get_running_loop())) as application:
            transport = Counting(application, token=TOKEN)
            reflecting = asyncio.ensure_future(Reflector(ApiCalls(transport), CLASSES, Informer()).run())
            await asyncio.sleep(1)
            application.end_streams()
            await asyncio.sleep(60)
            reflecting.cancel()
            await asyncio.gather(reflecting, return_exceptions=True)
        return requests

    assert run_virtual(main()) < 20
