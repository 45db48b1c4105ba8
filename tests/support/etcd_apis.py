"""API servers on a simulated etcd, behind a network that delays messages at random: for tests of the orders that they can have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import NamedTuple, cast

import grpc.aio

from dralloc.server.store.etcd import EtcdStore
from dralloc.server.store.etcd_api import EtcdAddress, EtcdApi
from tests.simulator.etcd_channel import EtcdChannel, EtcdHost
from tests.simulator.history import StoreHistory
from tests.simulator.network import Faults, Network
from tests.simulator.simulated_etcd import SimulatedEtcd
from tests.support.api_server import api_server
from tests.support.local_api import LocalApi


class EtcdApis(NamedTuple):
    apis: list[LocalApi]
    etcd: SimulatedEtcd


@asynccontextmanager
async def etcd_apis(random: Random, *, delays_s: Sequence[float] = (0.05,)) -> AsyncIterator[EtcdApis]:
    """To be used in virtual time. There is a server for each delay, by which half of its messages are late at most."""
    network = Network(random, Faults())
    host, address = EtcdHost(SimulatedEtcd(StoreHistory())), EtcdAddress(endpoints=("simulated:1",))
    apis: list[LocalApi] = []
    async with AsyncExitStack() as stack:
        for number, delay_s in enumerate(delays_s):
            network.disturb(f"server-{number}", host.process.name, Faults(slow=0.5, delay_max_s=delay_s))
            channel = cast("grpc.aio.Channel", EtcdChannel(network, f"server-{number}", host))
            store = await stack.enter_async_context(await EtcdStore.open_with(EtcdApi(address, channel)))
            apis.append(LocalApi(await stack.enter_async_context(api_server(store=store))))
        yield EtcdApis(apis, host.etcd)
