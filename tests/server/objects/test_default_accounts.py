"""Every namespace has the service account `default`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.server.server import ApiServer
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.records import Record
from dralloc.testing.virtual_time import run_virtual
from tests.support.local_api import FixedClock, LocalApi

NAMESPACES = "/api/v1/namespaces"


async def created(api: LocalApi, namespace: str, *, not_uid: str = "") -> str:
    """The UID of the account, once it exists."""
    path = f"{NAMESPACES}/{namespace}/serviceaccounts"
    async with asyncio.timeout(30):
        async for event in api.watch(path, resourceVersion="0"):
            metadata = event["object"]["metadata"]
            if event["type"] == "ADDED" and metadata["uid"] != not_uid:
                assert (metadata["name"], metadata["namespace"]) == ("default", namespace)
                return str(metadata["uid"])
    raise AssertionError("a watch has no end")


def test_every_namespace_gets_one_and_gets_it_again() -> None:
    async def main() -> None:
        async with MemoryStore() as store:
            server = ApiServer(store, clock=FixedClock(), gates=FeatureGates.defaults(), enforces_roles=True)
            await server.start()
            try:
                api = LocalApi(server)
                listed = await api.get("/api/v1/serviceaccounts")
                initial = [each["metadata"]["namespace"] for each in listed["items"]]
                assert initial == ["default", "kube-node-lease", "kube-public", "kube-system"]
                await api.create(NAMESPACES, {"metadata": {"name": "team"}})
                uid = await created(api, "team")
                await api.delete(f"{NAMESPACES}/team/serviceaccounts/default")
                assert await created(api, "team", not_uid=uid) != uid
            finally:
                await server.stop()

    asyncio.run(main())


class SlowAccount(MemoryStore):
    """The account of one namespace takes long."""

    async def create(self, key: str, value: bytes, **more: Any) -> Record:
        if key.startswith("/registry/serviceaccounts/a-slow/"):
            await asyncio.sleep(10)
        return await super().create(key, value, **more)


async def delete(api: LocalApi) -> None:
    """While another namespace gets its account."""
    await api.delete(f"{NAMESPACES}/gone")


async def label(api: LocalApi) -> None:
    """Each time that it is about to get its account."""
    for number in range(3):
        await api.patch(f"{NAMESPACES}/a-slow", {"metadata": {"labels": {"number": str(number)}}})
        await asyncio.sleep(10)


@pytest.mark.parametrize(("names", "change"), [(("a-slow", "gone"), delete), (("a-slow",), label)])
def test_namespaces_that_change_meanwhile_have_one_account_if_they_are_there(
    names: Sequence[str], change: Callable[[LocalApi], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with SlowAccount() as store:
            server = ApiServer(store, clock=FixedClock(), gates=FeatureGates.defaults(), enforces_roles=True)
            await server.start()
            try:
                api = LocalApi(server)
                for name in names:
                    await api.create(NAMESPACES, {"metadata": {"name": name}})
                await asyncio.sleep(5)
                await change(api)
                await asyncio.sleep(60)
                listed = (await api.get("/api/v1/serviceaccounts"))["items"]
                having = {each["metadata"]["namespace"] for each in listed}
                assert having == {each["metadata"]["name"] for each in (await api.get(NAMESPACES))["items"]}
            finally:
                await server.stop()

    run_virtual(main())
