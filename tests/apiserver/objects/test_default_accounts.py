"""Every namespace has the service account `default`."""

from __future__ import annotations

import asyncio

from dralloc.apiserver.server import ApiServer
from dralloc.primitives.features import FeatureGates
from dralloc.store.memory import MemoryStore
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
