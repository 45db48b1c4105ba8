"""Every namespace has the service account `default`."""

from __future__ import annotations

import asyncio
from typing import Any

from dralloc.apiserver.server import ApiServer
from dralloc.primitives.features import FeatureGates
from dralloc.simulator.virtual_time import run_virtual
from dralloc.store.memory import MemoryStore
from dralloc.store.records import Record
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


def test_no_account_is_made_in_a_namespace_that_went_while_another_got_its_account() -> None:
    async def main() -> None:
        async with SlowAccount() as store:
            server = ApiServer(store, clock=FixedClock(), gates=FeatureGates.defaults(), enforces_roles=True)
            await server.start()
            try:
                api = LocalApi(server)
                for name in ("a-slow", "gone"):
                    await api.create(NAMESPACES, {"metadata": {"name": name}})
                await asyncio.sleep(5)
                await api.delete(f"{NAMESPACES}/gone")
                await asyncio.sleep(60)
                listed = (await api.get("/api/v1/serviceaccounts"))["items"]
                having = {each["metadata"]["namespace"] for each in listed}
                assert having == {each["metadata"]["name"] for each in (await api.get(NAMESPACES))["items"]}
            finally:
                await server.stop()

    run_virtual(main())
