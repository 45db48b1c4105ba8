"""Writes whose outcome the server does not know: on etcd behind a network that fails, and with clients that leave.

Whatever the outcome, no device is given to two claims, and no quota is exceeded.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.server.server import ApiServer
from dralloc.server.store.interface import Store
from dralloc.server.store.store_url import open_store
from dralloc.testing.api_server import running_api_server
from tests.support.etcd_server import CALL_TIMEOUT_S, EtcdServer
from tests.support.local_api import CLAIMS, MERGE_PATCH, PODS, FixedClock, LocalApi, pod_document
from tests.support.local_api import claim_document as claim
from tests.support.tcp_proxy import TcpProxy

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
DEVICE_WRITE, CLAIM_WRITE = b'"allocation":{', b'"name":"a"'
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
GATES = FeatureGates.parse("GenericWorkload=true,DRAWorkloadResourceClaims=true")
ROUNDS = 10

_roots = itertools.count()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


def allocation(device: str) -> dict[str, Any]:
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": device}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


async def allocate(api: LocalApi, name: str, device: str = "gpu-0") -> int:
    answer = await api.call("PATCH", f"{CLAIMS}/{name}/status", allocation(device), content_type=MERGE_PATCH)
    return answer.code


async def when_possible(write: Callable[[LocalApi, str], Coroutine[Any, Any, int]], api: LocalApi, name: str) -> int:
    """Write as clients do: again as long as the store does not answer, which includes calls on a connection just reset."""
    while (code := await write(api, name)) == 503:
        pass
    return code


async def create(api: LocalApi, name: str) -> int:
    return (await api.call("POST", CLAIMS, claim(name))).code


async def holders(api: LocalApi) -> list[str]:
    """The claims that have the device."""
    return [each["metadata"]["name"] for each in (await api.get(CLAIMS))["items"] if "allocation" in each["status"]]


async def prepare(api: LocalApi) -> None:
    """Claims and a view of the guard that is up to date."""
    for name in ("a", "b", "first"):
        await api.create(CLAIMS, claim(name))
    await api.patch(f"{CLAIMS}/first/status", allocation("another"))
    await api.delete(f"{CLAIMS}/first")


async def prepare_quota(api: LocalApi) -> None:
    """A quota of one claim, and a view of the guard that is up to date."""
    await api.create(
        QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "1"}}}
    )
    await api.create(CLAIMS, claim("first"))
    await api.delete(f"{CLAIMS}/first")


class Cluster:
    """API servers on one etcd. The first reaches it through a proxy; `sure` reads what is stored."""

    def __init__(self, proxy: TcpProxy, apis: list[LocalApi], sure: Store) -> None:
        self.proxy = proxy
        self.api = apis[0]
        self.other = apis[-1]
        self._sure = sure

    async def stored(self, marker: bytes, *, is_gone: bool = False) -> None:
        """Wait until a record with the marker is stored, or none is."""
        while True:
            found = await self._sure.list_prefix("/registry/")
            if any(marker in record.value for record in found.records) is not is_gone:
                return
            with await self._sure.watch("/registry/", after_revision=found.revision) as watch:
                await watch.next()


@asynccontextmanager
async def cluster(etcd: EtcdServer, servers: int = 1) -> AsyncIterator[Cluster]:
    root = f"/ambiguous-{next(_roots)}"
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(TcpProxy(etcd.endpoint))
        urls = [f"etcd://{proxy.endpoint}{root}?timeout={CALL_TIMEOUT_S}", *([etcd.url(root)] * (servers - 1))]
        apis: list[LocalApi] = []
        for url in urls:
            store = await stack.enter_async_context(await open_store(url))
            server = await stack.enter_async_context(
                running_api_server(ApiServer(store, clock=FixedClock(), gates=GATES))
            )
            apis.append(LocalApi(server))
        yield Cluster(proxy, apis, await stack.enter_async_context(await open_store(etcd.url(root))))


def in_cluster(etcd: EtcdServer, test: Callable[[Cluster], Coroutine[Any, Any, None]], servers: int = 1) -> None:
    async def run() -> None:
        async with asyncio.timeout(120), cluster(etcd, servers) as made:
            await test(made)

    asyncio.run(run())


async def lose_the_answer(
    on: Cluster, write: Coroutine[Any, Any, int], marker: bytes, stored: Coroutine[Any, Any, None] | None = None
) -> int:
    """Send the write, and reset its connection after etcd has committed it: `stored`, by default a record with the marker."""
    on.proxy.lose_answers_after(marker)
    writing = asyncio.create_task(write)
    await on.proxy.struck.wait()
    await (stored or on.stored(marker))
    on.proxy.reset_clients()
    return await writing


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_device_has_one_claim_if_the_connection_is_reset_after_the_commit(etcd: EtcdServer, round_: int) -> None:
    async def run(on: Cluster) -> None:
        await prepare(on.api)
        assert await lose_the_answer(on, allocate(on.api, "a"), DEVICE_WRITE) == 503
        assert await when_possible(allocate, on.api, "b") == 409
        assert await holders(on.api) == ["a"]
        # The hold of the write is gone: the device is free as soon as the claim is.
        await on.api.patch(f"{CLAIMS}/a/status", {"status": {"allocation": None}})
        assert await allocate(on.api, "b") == 200

    in_cluster(etcd, run)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_quota_holds_if_the_connection_is_reset_after_the_commit(etcd: EtcdServer, round_: int) -> None:
    async def run(on: Cluster) -> None:
        await prepare_quota(on.api)
        assert await lose_the_answer(on, create(on.api, "a"), CLAIM_WRITE) == 503
        assert await when_possible(create, on.api, "b") == 403
        await on.api.delete(f"{CLAIMS}/a")
        assert await create(on.api, "b") == 201

    in_cluster(etcd, run)


@pytest.mark.slow
def test_a_write_that_reaches_etcd_late_does_not_take_a_device_that_was_given_away(etcd: EtcdServer) -> None:
    async def run(on: Cluster) -> None:
        await prepare(on.api)
        on.proxy.delay_requests_at(DEVICE_WRITE)
        writing = asyncio.create_task(allocate(on.api, "a"))
        await on.proxy.struck.wait()
        on.proxy.reset_clients()
        assert await writing == 503
        # Nothing is stored, but the write is still under way.
        assert await when_possible(allocate, on.api, "b") == 200
        await on.proxy.deliver()
        assert await holders(on.api) == ["b"]

    in_cluster(etcd, run)


@pytest.mark.slow
@pytest.mark.parametrize("committed", [True, False])
def test_a_client_that_leaves_during_the_write_leaves_no_device_to_two_claims(
    etcd: EtcdServer, committed: bool
) -> None:
    async def run(on: Cluster) -> None:
        await prepare(on.api)
        (on.proxy.lose_answers_after if committed else on.proxy.delay_requests_at)(DEVICE_WRITE)
        writing = asyncio.create_task(allocate(on.api, "a"))
        await on.proxy.struck.wait()
        if committed:
            await on.stored(DEVICE_WRITE)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        on.proxy.reset_clients()
        assert await when_possible(allocate, on.api, "b") == (409 if committed else 200)
        if not committed:
            await on.proxy.deliver()
        assert await holders(on.api) == ["a" if committed else "b"]

    in_cluster(etcd, run)


@pytest.mark.slow
def test_two_servers_give_a_device_to_one_claim(etcd: EtcdServer) -> None:
    async def run(on: Cluster) -> None:
        await prepare(on.api)
        # The first server has decided when the second one allocates the device.
        on.proxy.delay_requests_at(DEVICE_WRITE)
        writing = asyncio.create_task(allocate(on.api, "a"))
        await on.proxy.struck.wait()
        assert await allocate(on.other, "b") == 200
        await on.proxy.deliver()
        assert await writing == 409
        assert await holders(on.api) == ["b"]

    in_cluster(etcd, run, servers=2)


@pytest.mark.slow
def test_two_servers_keep_a_quota(etcd: EtcdServer) -> None:
    async def run(on: Cluster) -> None:
        await prepare_quota(on.api)
        on.proxy.delay_requests_at(CLAIM_WRITE)
        writing = asyncio.create_task(create(on.api, "a"))
        await on.proxy.struck.wait()
        assert await create(on.other, "b") == 201
        await on.proxy.deliver()
        assert await writing == 403

    in_cluster(etcd, run, servers=2)


async def prepare_use(api: LocalApi, group: str = "") -> None:
    """A pod without a node, and an allocated claim that is reserved for it or for its group."""
    await prepare(api)
    document = pod_document("p")
    document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "a"}]
    consumer = {"resource": "pods", "name": "p"}
    if group:
        document["spec"]["schedulingGroup"] = {"podGroupName": group}
        made = await api.create(GROUPS, {"metadata": {"name": group}, "spec": {"schedulingPolicy": {"basic": {}}}})
        consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group}
    created = await api.create(PODS, document)
    uid = (made if group else created)["metadata"]["uid"]
    assert await allocate(api, "a") == 200
    await api.patch(f"{CLAIMS}/a/status", {"status": {"reservedFor": [{**consumer, "uid": uid}]}})


async def bind(api: LocalApi) -> int:
    pod = await api.call("GET", f"{PODS}/p")
    if pod.code != 200:
        return pod.code
    binding = {"metadata": {"uid": pod.document["metadata"]["uid"]}, "target": {"kind": "Node", "name": "n"}}
    return (await api.call("POST", f"{PODS}/p/binding", binding)).code


async def deallocate(api: LocalApi) -> int:
    patch = {"status": {"allocation": None, "reservedFor": None}}
    return (await api.call("PATCH", f"{CLAIMS}/a/status", patch, content_type=MERGE_PATCH)).code


@pytest.mark.slow
@pytest.mark.parametrize("group", ["", "g"], ids=["pod", "group"])
@pytest.mark.parametrize("binds_first", [True, False])
def test_no_bound_pod_is_without_devices_if_the_connection_is_reset_after_the_commit(
    etcd: EtcdServer, binds_first: bool, group: str
) -> None:
    async def run(on: Cluster) -> None:
        await prepare_use(on.api, group)
        first, second = (bind, deallocate) if binds_first else (deallocate, bind)
        stored = on.stored(b'"nodeName":"n"') if binds_first else on.stored(b'"device":"gpu-0"', is_gone=True)
        assert await lose_the_answer(on, first(on.api), b"fence/claim-use", stored) == 503
        assert await when_possible(lambda api, _: second(api), on.api, "") == 409

    in_cluster(etcd, run)


@pytest.mark.slow
@pytest.mark.parametrize("binds_first", [True, False])
def test_a_binding_or_deallocation_that_reaches_etcd_late_leaves_no_bound_pod_without_devices(
    etcd: EtcdServer, binds_first: bool
) -> None:
    async def run(on: Cluster) -> None:
        await prepare_use(on.api)
        first, second = (bind, deallocate) if binds_first else (deallocate, bind)
        on.proxy.delay_requests_at(b"fence/claim-use")
        writing = asyncio.create_task(first(on.api))
        await on.proxy.struck.wait()
        on.proxy.reset_clients()
        assert await writing == 503
        assert await when_possible(lambda api, _: second(api), on.api, "") in (200, 201)
        await on.proxy.deliver()
        is_bound = bool((await on.api.get(f"{PODS}/p"))["spec"].get("nodeName"))
        assert await holders(on.api) == (["a"] if is_bound else [])

    in_cluster(etcd, run)


@pytest.mark.slow
@pytest.mark.parametrize("binds_first", [True, False])
def test_a_delayed_binding_or_deallocation_leaves_no_bound_pod_without_devices(
    etcd: EtcdServer, binds_first: bool
) -> None:
    """Two schedulers with two servers: one binds a pod while the other deallocates its claim, and one request is delayed."""

    async def run(on: Cluster) -> None:
        await prepare_use(on.api)
        on.proxy.delay_requests_at(b"fence/claim-use")
        delayed = asyncio.create_task((bind if binds_first else deallocate)(on.api))
        await on.proxy.struck.wait()
        assert await (deallocate if binds_first else bind)(on.other) == (200 if binds_first else 201)
        await on.proxy.deliver()
        assert await delayed == 409

    in_cluster(etcd, run, servers=2)


@pytest.mark.slow
def test_concurrent_allocations_through_two_servers_all_end(etcd: EtcdServer) -> None:
    """Both servers write at once: each device has one claim, and no request fails for another reason than its device."""

    async def run(on: Cluster) -> None:
        names = [f"c{number}" for number in range(40)]
        for name in names:
            await on.api.create(CLAIMS, claim(name))
        writes = [
            allocate(api, name, f"gpu-{number % 20}")
            for number, (api, name) in enumerate(zip(itertools.cycle([on.api, on.other]), names, strict=False))
        ]
        codes = await asyncio.gather(*writes)
        assert sorted(codes) == [200] * 20 + [409] * 20

    in_cluster(etcd, run, servers=2)


@pytest.mark.slow
def test_a_write_through_one_server_counts_at_once_on_the_other(etcd: EtcdServer) -> None:
    """Each request is answered before the next one is sent, through the other server."""

    async def run(on: Cluster) -> None:
        await prepare(on.api)
        for number in range(ROUNDS):
            one, two = (on.api, on.other) if number % 2 else (on.other, on.api)
            assert await allocate(one, "a", f"gpu-{number}") == 200
            assert await allocate(two, "b", f"gpu-{number}") == 409
            await two.patch(f"{CLAIMS}/a/status", {"status": {"allocation": None}})

    in_cluster(etcd, run, servers=2)


@pytest.mark.slow
def test_writes_of_other_users_of_etcd_do_not_stop_the_guard(etcd: EtcdServer) -> None:
    """Their revisions appear in no watch of ours."""

    async def run(on: Cluster) -> None:
        await prepare(on.api)
        async with await open_store(etcd.url(f"/foreign-{next(_roots)}")) as foreign:
            await foreign.create("/x", b"")
            assert await allocate(on.api, "a") == 200
            await foreign.create("/y", b"")
            assert await allocate(on.api, "b") == 409

    in_cluster(etcd, run)


@pytest.mark.slow
def test_the_guard_counts_what_a_restored_etcd_has(tmp_path: Path) -> None:
    async def run(on: Cluster) -> None:
        await prepare(on.api)
        await on.api.patch(f"{CLAIMS}/a/status", allocation("gpu-0"))
        restored.backup(tmp_path / "snapshot")
        # The backup has another holder of the first device, and none of the second one.
        await on.api.patch(f"{CLAIMS}/a/status", {"status": {"allocation": None}})
        await on.api.patch(f"{CLAIMS}/b/status", allocation("gpu-1"))
        for number in range(10):
            await on.api.create(CLAIMS, claim(f"after-{number}"))
        restored.kill()
        restored.restore(tmp_path / "snapshot")
        restored.start()
        assert await when_possible(allocate, on.api, "b") == 409
        assert await allocate(on.api, "b", "gpu-1") == 200

    with EtcdServer(tmp_path / "etcd") as restored:
        in_cluster(restored, run)


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"])
def test_cancelled_requests_leave_no_device_to_two_claims(tmp_path: Path, store_kind: str) -> None:
    """A client leaves at each step of its request; whatever it had reached, the device has one claim."""

    async def run() -> None:
        url = "memory://" if store_kind == "memory" else f"sqlite://{tmp_path / 'store.db'}"
        async with (
            asyncio.timeout(120),
            await open_store(url) as store,
            running_api_server(ApiServer(store, clock=FixedClock(), gates=FeatureGates.defaults())) as server,
        ):
            api = LocalApi(server)
            for steps in range(12):
                await api.create(CLAIMS, claim("a"))
                await api.create(CLAIMS, claim("b"))
                writing = asyncio.create_task(allocate(api, "a"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
                code = await allocate(api, "b")
                assert await holders(api) == ["b" if code == 200 else "a"]
                await api.delete(f"{CLAIMS}/a")
                await api.delete(f"{CLAIMS}/b")

    asyncio.run(run())
