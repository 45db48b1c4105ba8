"""How many pods are decided on before anything else runs."""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec

from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.kube.dralloc_v1 import BATCH_PATH, WriteBatch
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.testing.builders import claim, device_class, request
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.relay_transport import RelayTransport
from tests.support.scheduled_cluster import gpus, node, our_pod, scheduled_cluster

PODS = 20


class SlowClock(VirtualClock):
    """Whatever happens between two looks at it takes 30 ms."""

    def now(self) -> datetime:
        self.jump(0.03)
        return super().now()


class BatchSizes(RelayTransport):
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def around(self, inner: Transport) -> Transport:
        super().__init__(inner)
        return self

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.path == BATCH_PATH:
            self.sizes.append(len(msgspec.json.decode(request.body, type=WriteBatch).requests))
        return await super().send(request)


def first_batch(*, is_slow: bool) -> int:
    """How many writes are sent first for pods that wait for a scheduler."""

    async def main() -> int:
        sent = BatchSizes()
        async with scheduled_cluster(schedulers=0, is_batched=True, wrap=sent.around) as cluster:
            await cluster.create(device_class(), node("node-a"), gpus("node-a", PODS))
            for number in range(PODS):
                await cluster.create(claim(f"c{number}", request()), our_pod(f"p{number}", f"c{number}"))
            if is_slow:
                cluster.clock = SlowClock(asyncio.get_running_loop())
            cluster.start(SchedulerSettings())
            await cluster.settle()
            assert [await cluster.node_of(f"p{number}") for number in range(PODS)] == ["node-a"] * PODS
            return sent.sizes[0]

    return run_virtual(main())


def test_pods_that_wait_together_are_written_together() -> None:
    assert first_batch(is_slow=False) == PODS, "a claim of each"


def test_slow_decisions_let_writes_run_between_them() -> None:
    assert first_batch(is_slow=True) < PODS
