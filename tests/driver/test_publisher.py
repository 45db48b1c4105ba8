"""Publishing slices to a real API server: writes, repairs and lost requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.driver.devices import Pool, counter_set, device
from dralloc.driver.metrics import DriverMetrics
from dralloc.driver.publisher import DroppedFields, SlicePublisher
from dralloc.driver.slices import InvalidPools
from dralloc.kube.core_v1 import Node
from dralloc.kube.device_parts import capacity
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.simulator.network import Faults
from tests.support.api_server import TOKEN, api_application
from tests.support.faulty_transport import FaultyTransport
from tests.support.relay_transport import RelayTransport

DRIVER = "gpu.example.com"
NODE = "node-a"
REPAIR_DELAY_S = 30.0
LATE_S = 10.0


def pool(*names: str, name: str = NODE) -> Pool:
    return Pool(name=name, devices=tuple(map(device, names)))


def many(count: int, name: str = NODE) -> Pool:
    return pool(*(f"gpu-{number}" for number in range(count)), name=name)


class Bench:
    """A server with a node, and publishers on it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.client = AsyncClient(transport)
        self.metrics = DriverMetrics(DRIVER)
        self.problems: list[Exception] = []
        self.may_write = True

    @asynccontextmanager
    async def publisher(
        self, *, transport: Transport | None = None, node: str | None = NODE
    ) -> AsyncIterator[SlicePublisher]:
        publisher = SlicePublisher(
            ApiCalls(transport or self.transport),
            DRIVER,
            node_name=node,
            metrics=self.metrics,
            on_problem=self.problems.append,
            may_write=lambda: self.may_write,
            repair_delay_s=REPAIR_DELAY_S,
        )
        running = asyncio.create_task(publisher.run())
        try:
            yield publisher
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def slices(self) -> list[ResourceSlice]:
        return sorted(await self.client.list(ResourceSlice), key=lambda item: (item.spec.pool.name, item.metadata.name))

    async def shown(self) -> list[str]:
        """`node-a @1 of 2: 128 devices`, slice by slice."""
        return [
            f"{item.spec.pool.name} @{item.spec.pool.generation} of {item.spec.pool.resource_slice_count}: "
            f"{len(item.spec.devices or ())} devices"
            for item in await self.slices()
        ]

    def writes(self, verb: str) -> float:
        return self.metrics.slice_writes.value(DRIVER, verb)


def with_bench(test: Callable[[Bench], Awaitable[None]], gates: FeatureGates | None = None) -> Callable[[], None]:
    async def run() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock, gates=gates) as application:
            bench = Bench(InProcessTransport(application, token=TOKEN))
            await bench.client.create(Node(metadata=ObjectMeta(name=NODE)))
            await test(bench)

    return lambda: run_virtual(run())


async def publish(publisher: SlicePublisher, *pools: Pool) -> None:
    publisher.publish(pools)
    await publisher.written()


def test_devices_are_published_changed_and_removed() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.publisher() as publisher:
            await publish(publisher, many(200))
            assert await bench.shown() == ["node-a @1 of 2: 128 devices", "node-a @1 of 2: 72 devices"]
            await publish(publisher, many(201))
            assert await bench.shown() == ["node-a @1 of 2: 128 devices", "node-a @1 of 2: 73 devices"]
            await publish(publisher, many(1), pool(name="other"))
            assert await bench.shown() == ["node-a @1 of 1: 1 devices", "other @1 of 1: 0 devices"]
            await publish(publisher)
            assert await bench.shown() == []
        assert bench.problems == []
        assert [bench.writes(verb) for verb in ("create", "update", "delete")] == [3, 2, 3]

    with_bench(scenario)()


def test_slices_are_owned_by_the_node_and_deleted_with_it() -> None:
    async def scenario(bench: Bench) -> None:
        node = await bench.client.get(Node, NODE)
        async with bench.publisher() as publisher:
            await publish(publisher, many(1))
        (stored,) = await bench.slices()
        (owner,) = stored.metadata.owner_references
        assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Node", NODE, node.metadata.uid, True)
        assert stored.spec.node_name == NODE

    with_bench(scenario)()


def test_a_second_start_writes_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(2):
            async with bench.publisher() as publisher:
                await publish(publisher, many(130))
                await asyncio.sleep(10 * REPAIR_DELAY_S)
        assert [bench.writes(verb) for verb in ("create", "update", "delete")] == [2, 0, 0]

    with_bench(scenario)()


def test_obsolete_pools_are_deleted_and_those_of_other_drivers_stay() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.client.create(Node(metadata=ObjectMeta(name="node-b")))
        async with bench.publisher(node="node-b") as elsewhere, bench.publisher(node=None) as nowhere:
            await publish(elsewhere, many(1, name="b"))
            await publish(nowhere, Pool(name="net", devices=(device("n"),), all_nodes=True))
        async with bench.publisher() as old:
            await publish(old, many(1, name="old"))
        async with bench.publisher() as new:
            await publish(new, many(1, name="new"))
            pools = {item.spec.pool.name for item in await bench.slices()}
            assert pools == {"new", "b", "net"}
        async with bench.publisher(node=None) as nowhere:
            await publish(nowhere)
            assert {item.spec.pool.name for item in await bench.slices()} == {"new", "b"}

    with_bench(scenario)()


def test_foreign_changes_are_repaired() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.publisher() as publisher:
            await publish(publisher, many(130))
            for item in await bench.slices():
                await bench.client.delete(ResourceSlice, item.metadata.name)
            await asyncio.sleep(REPAIR_DELAY_S - 1)
            assert await bench.shown() == []
            await asyncio.sleep(2)
            assert await bench.shown() == ["node-a @1 of 2: 128 devices", "node-a @1 of 2: 2 devices"]
            second = (await bench.slices())[1]
            await bench.client.patch(ResourceSlice, second.metadata.name, {"spec": {"devices": None}})
            await asyncio.sleep(REPAIR_DELAY_S + 1)
            assert await bench.shown() == ["node-a @1 of 2: 128 devices", "node-a @1 of 2: 2 devices"]
        assert bench.problems == []

    with_bench(scenario)()


def test_invalid_pools_are_refused_and_change_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.publisher() as publisher:
            await publish(publisher, many(1))
            with pytest.raises(InvalidPools, match="gpu-0 is listed 2 times"):
                publisher.publish([pool("gpu-0", "gpu-0")])
            await asyncio.sleep(2 * REPAIR_DELAY_S)
            assert await bench.shown() == ["node-a @1 of 1: 1 devices"]

    with_bench(scenario)()


def test_dropped_fields_are_reported_once_and_not_rewritten() -> None:
    async def scenario(bench: Bench) -> None:
        shared = device(
            "gpu-0", shareable=True, capacity={"memory": capacity("8Gi", default="1Gi", step="1Gi", minimum="1Gi")}
        )
        async with bench.publisher() as publisher:
            await publish(publisher, Pool(name=NODE, devices=(shared,)))
            await asyncio.sleep(10 * REPAIR_DELAY_S)
            (problem,) = bench.problems
            assert isinstance(problem, DroppedFields)
            assert problem.gates == ("DRAConsumableCapacity",)
            assert (bench.writes("create"), bench.writes("update")) == (1, 0)
            await publish(publisher, Pool(name=NODE, devices=(shared,)))
            assert len(bench.problems) == 2, "published again, it is wanted again"

    with_bench(scenario, FeatureGates.parse("DRAConsumableCapacity=false"))()


def test_partitions_are_not_offered_if_the_server_drops_their_counters() -> None:
    """They would be allocated together, as if they had nothing in common."""
    halves = [device(name, draws={"card": {"slots": 4}}) for name in ("half-0", "half-1", "half-2")]
    cards = Pool(name=NODE, devices=(device("plain"), *halves), counters=(counter_set("card", slots=8),))

    async def scenario(bench: Bench) -> None:
        async with bench.publisher() as publisher:
            await publish(publisher, cards)
            await asyncio.sleep(10 * REPAIR_DELAY_S)
            offered = [device.name for item in await bench.slices() for device in item.spec.devices or ()]
            assert offered == ["plain"]
            (problem,) = bench.problems
            assert isinstance(problem, DroppedFields)
            assert problem.gates == ("DRAPartitionableDevices",)
            # The empty slice of the counters twice, that of the devices once: partitions were never published.
            assert (bench.writes("create"), bench.writes("update")) == (2, 1)

    with_bench(scenario, FeatureGates.parse("DRAPartitionableDevices=false"))()


class LateAnswers(RelayTransport):
    """Creations are answered late."""

    async def send(self, request: ClientRequest) -> ClientResponse:
        response = await super().send(request)
        if request.method == "POST":
            await asyncio.sleep(LATE_S)
        return response


def test_a_slice_that_was_deleted_before_its_creation_was_answered_is_published_again() -> None:
    """A node agent that starts deletes the slices of its node."""

    async def scenario(bench: Bench) -> None:
        async with bench.publisher(transport=LateAnswers(bench.transport)) as publisher:
            publisher.publish([many(1)])
            await asyncio.sleep(LATE_S / 2)
            (published,) = await bench.slices()
            await bench.client.delete(ResourceSlice, published.metadata.name)
            await asyncio.sleep(2 * LATE_S + 2 * REPAIR_DELAY_S)
            assert await bench.shown() == ["node-a @1 of 1: 1 devices"]

    with_bench(scenario)()


def test_an_older_instance_does_not_write() -> None:
    async def scenario(bench: Bench) -> None:
        bench.may_write = False
        async with bench.publisher() as publisher:
            publisher.publish([many(1)])
            await asyncio.sleep(3 * REPAIR_DELAY_S)
            assert await bench.shown() == []
            bench.may_write = True
            await publisher.written()
            assert await bench.shown() == ["node-a @1 of 1: 1 devices"]

    with_bench(scenario)()


def test_slices_wait_for_their_node() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.publisher(node="node-late") as publisher:
            publisher.publish([many(1)])
            await asyncio.sleep(5)
            assert await bench.shown() == []
            await bench.client.create(Node(metadata=ObjectMeta(name="node-late")))
            await publisher.written()
            assert await bench.shown() == ["node-a @1 of 1: 1 devices"]

    with_bench(scenario)()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_wanted_slices_are_published_over_a_lossy_network(seed: int) -> None:
    async def scenario(bench: Bench) -> None:
        random = Random(seed)
        network = FaultyTransport(bench.transport, random, Faults(lose_request=0.2, lose_answer=0.2, break_stream=0.3))
        async with bench.publisher(transport=network) as publisher:
            sizes: Sequence[int] = [random.randrange(300) for _ in range(6)]
            for size in sizes:
                publisher.publish([many(size)])
                await asyncio.sleep(random.random() * 5)
            network.faults = Faults()
            await publisher.written()
            await asyncio.sleep(10 * REPAIR_DELAY_S)
        slices = await bench.slices()
        newest = {item.spec.pool.generation for item in slices}
        assert len(newest) == 1
        assert all(item.spec.pool.resource_slice_count == len(slices) for item in slices)
        assert [found.name for item in slices for found in item.spec.devices or ()] == [
            f"gpu-{number}" for number in range(sizes[-1])
        ]

    with_bench(scenario)()
