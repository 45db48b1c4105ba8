"""The cache of our own writes in front of an informer, and suffixes of names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hypothesis import given
from hypothesis import strategies as st

from dralloc.client.informer import Informer
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.mutation_cache import KEPT_S, MutationCache
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import DeviceClass
from dralloc.primitives.names import ALPHABET, suffix
from dralloc.testing.virtual_time import run_virtual


def at(revision: int) -> DeviceClass:
    return DeviceClass(metadata=ObjectMeta(name="c", uid="u", resource_version=str(revision)))


def revision_of(item: DeviceClass | None) -> int | None:
    return None if item is None else int(item.metadata.resource_version)


def play(scenario: Callable[[Informer[DeviceClass], MutationCache[DeviceClass]], Awaitable[None]]) -> None:
    async def main() -> None:
        informer: Informer[DeviceClass] = Informer()
        await scenario(informer, MutationCache(informer))

    run_virtual(main())


def test_a_written_object_is_returned_until_the_informer_has_caught_up() -> None:
    async def scenario(informer: Informer[DeviceClass], latest: MutationCache[DeviceClass]) -> None:
        informer.put(at(5))
        latest.keep(at(9))
        assert revision_of(latest.get("c")) == 9
        informer.put(at(7))
        assert revision_of(latest.get("c")) == 9
        informer.put(at(11))
        assert revision_of(latest.get("c")) == 11

    play(scenario)


def test_a_written_object_older_than_the_informed_one_is_ignored() -> None:
    async def scenario(informer: Informer[DeviceClass], latest: MutationCache[DeviceClass]) -> None:
        informer.put(at(10))
        latest.keep(at(9))
        assert revision_of(latest.get("c")) == 10

    play(scenario)


def test_a_deletion_removes_the_written_object() -> None:
    async def scenario(informer: Informer[DeviceClass], latest: MutationCache[DeviceClass]) -> None:
        informer.put(at(5))
        latest.keep(at(6))
        informer.remove(ObjectKey("", "c"))
        assert latest.get("c") is None

    play(scenario)


def test_a_written_object_that_the_informer_never_shows_expires() -> None:
    async def scenario(_: Informer[DeviceClass], latest: MutationCache[DeviceClass]) -> None:
        latest.keep(at(6))
        await asyncio.sleep(KEPT_S - 1)
        assert revision_of(latest.get("c")) == 6
        await asyncio.sleep(2)
        assert latest.get("c") is None

    play(scenario)


@given(seed=st.text(), first=st.integers(0, 10**6), second=st.integers(0, 10**6))
def test_suffixes_are_short_and_unique(seed: str, first: int, second: int) -> None:
    assert len(suffix(seed, first)) == 5
    assert set(suffix(seed, first)) <= set(ALPHABET)
    assert (suffix(seed, first) == suffix(seed, second)) == (first == second)
