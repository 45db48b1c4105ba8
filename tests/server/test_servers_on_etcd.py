"""Servers on a real etcd: the recorded conversation, and two servers of one cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dralloc.conformance.vector_family import VectorOptions, load_family, read_lines
from dralloc.primitives.features import FeatureGates
from dralloc.server.server import ApiServer
from dralloc.server.store.store_url import open_store
from dralloc.testing.api_server import running_api_server
from tests.support.etcd_server import EtcdServer
from tests.support.local_api import CLAIMS, PODS, FixedClock, LocalApi, claim_document, pod_document
from tests.support.server_process import server_process

pytestmark = pytest.mark.slow

VECTORS = Path(__file__).parents[1] / "vectors"


def test_the_recorded_conversation_passes_on_etcd(tmp_path: Path) -> None:
    with (
        EtcdServer(tmp_path / "etcd") as etcd,
        server_process(tmp_path / "data", "--store", etcd.url()) as server,
    ):
        options = VectorOptions(server=server.url, kubeconfig=server.kubeconfig)
        verdicts = list(load_family("http").run(read_lines(VECTORS / "http.jsonl.gz"), options))
    assert [verdict for verdict in verdicts if verdict.differences] == []


@asynccontextmanager
async def servers_on(url: str, count: int) -> AsyncIterator[list[LocalApi]]:
    async with AsyncExitStack() as stack:
        apis = []
        for _ in range(count):
            store = await stack.enter_async_context(await open_store(url))
            running = running_api_server(ApiServer(store, clock=FixedClock(), gates=FeatureGates.defaults()))
            apis.append(LocalApi(await stack.enter_async_context(running)))
        yield apis


def test_two_servers_serve_one_cluster(tmp_path: Path) -> None:
    async def main(etcd: EtcdServer) -> None:
        async with asyncio.timeout(60), servers_on(etcd.url(), 2) as (one, other):
            watching = other.watch(CLAIMS, resourceVersion=(await other.get(CLAIMS))["metadata"]["resourceVersion"])
            first = asyncio.ensure_future(anext(watching))
            created = await one.create(CLAIMS, claim_document())
            assert (await first)["object"] == created
            # The other server serves a write at once.
            version = created["metadata"]["resourceVersion"]
            assert (await other.get(f"{CLAIMS}/c", resourceVersion=version)) == created
            labels = [{"metadata": {"labels": {f"l{number}": "x"}}} for number in range(8)]
            await asyncio.gather(
                *(api.patch(f"{CLAIMS}/c", label) for label, api in zip(labels, [one, other] * 4, strict=True))
            )
            assert len((await one.get(f"{CLAIMS}/c"))["metadata"]["labels"]) == 8
            # Both servers collect garbage, without errors.
            owner = await one.create(PODS, pod_document())
            reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner["metadata"]["uid"]}
            await one.create(CLAIMS, claim_document("owned", ownerReferences=[reference]))
            await other.delete(f"{PODS}/p")
            async for event in watching:
                if (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "owned"):
                    break

    with EtcdServer(tmp_path) as etcd:
        asyncio.run(main(etcd))


def test_the_server_is_unavailable_while_etcd_is_down_and_recovers(tmp_path: Path) -> None:
    async def main(etcd: EtcdServer) -> None:
        async with asyncio.timeout(100), servers_on(f"etcd://{etcd.endpoint}", 1) as (api,):
            await api.create(CLAIMS, claim_document("before"))
            etcd.kill()
            refused = await api.call("POST", CLAIMS, claim_document("meanwhile"))
            assert (refused.code, refused.document["reason"]) == (503, "ServiceUnavailable")
            assert (await api.call("GET", "/readyz")).code == 503
            for revision in ("", "1000000"):
                assert [event async for event in api.watch(CLAIMS, resourceVersion=revision)] == []
            assert (await api.call("GET", "/livez")).code == 200
            etcd.start()
            while (await api.call("GET", "/readyz")).code != 200:
                await asyncio.sleep(0)
            await api.create(CLAIMS, claim_document("after"))
            assert json.dumps(await api.get(CLAIMS)).count('"before"') == 1

    with EtcdServer(tmp_path) as etcd:
        asyncio.run(main(etcd))
