"""How long a pod takes from the request that creates it until a watch shows it bound, on an idle cluster over HTTP.

make bench ARGS=latency
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from bench.measurement import Figure, benchmark
from dralloc.client.api_calls import ApiCalls
from dralloc.client.http_transport import HttpTransport
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.kubeconfig import read_kubeconfig
from dralloc.client.reflector import Reflector
from dralloc.kube.pod_v1 import Pod
from dralloc.testing.benchmark_targets import local_cluster
from dralloc.testing.benchmark_workloads import WORKLOADS, BenchmarkWorkload
from dralloc.testing.throughput import create_all
from tests.support.cluster_process import cluster_process

NODES: Final = 50
PODS: Final = 200
# Long enough for everything that follows a pod's binding to come to rest.
PAUSE_S: Final = 0.03
TIMEOUT_S: Final = 60.0
SYNCS: Final = 50
# Half of the pods, and all but one in a hundred, take at most so long.
GOALS_MS: Final = {50: 5.0, 99: 15.0}


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    start: Callable[[Path], AbstractContextManager[Path]]
    workload: str = "plain"
    has_goal: bool = True


@benchmark("latency")
def latency() -> Iterator[Figure]:
    for place in PLACES:
        with (
            tempfile.TemporaryDirectory() as directory,
            place.start(Path(directory)) as kubeconfig,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            durations = sorted(runner.run(bind_one_by_one(kubeconfig, WORKLOADS[place.workload])))
        for percent, goal in GOALS_MS.items():
            took_ms = durations[len(durations) * percent // 100] * 1000
            name = f"{place.name}, {place.workload}: create to bound, p{percent}"
            yield Figure(name, took_ms, "ms", goal if place.has_goal else None)
    with tempfile.TemporaryDirectory() as directory:
        yield Figure("the disk: to sync 4 KiB, p50 (a pod takes three in turn)", sync_s(Path(directory)) * 1000, "ms")


@contextmanager
def up(directory: Path) -> Iterator[Path]:
    with cluster_process("--data-dir", str(directory), "--no-nodes") as cluster:
        yield cluster.kubeconfig


@contextmanager
def up_in_memory(directory: Path) -> Iterator[Path]:
    kubeconfig = directory / "kubeconfig"
    with cluster_process("--ephemeral", "--no-nodes", "--kubeconfig", str(kubeconfig)):
        yield kubeconfig


def own_processes(directory: Path, store: str | None = None) -> AbstractContextManager[Path]:
    return local_cluster(directory, with_controllers=True, store=store)


IN_MEMORY: Final = partial(own_processes, store="memory://")
PLACES: Final = (
    Place("dralloc up", up),
    Place("own processes", own_processes),
    Place("dralloc up, store in memory", up_in_memory),
    Place("own processes, store in memory", IN_MEMORY),
    Place("own processes, store in memory", IN_MEMORY, "template", has_goal=False),
)


def sync_s(directory: Path) -> float:
    """How long the disk takes to store a block."""
    durations: list[float] = []
    with (directory / "block").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            durations.append(time.perf_counter() - began)
    return sorted(durations)[SYNCS // 2]


async def bind_one_by_one(kubeconfig: Path, workload: BenchmarkWorkload) -> Sequence[float]:
    """The seconds that each of the pods took; the first ones, for which programs warm up, are left out."""
    calls = ApiCalls(HttpTransport(read_kubeconfig(kubeconfig)), field_manager="")
    informer, bindings = Informer[Pod](), Bindings()
    informer.subscribe(bindings.pod_changed)
    watching = asyncio.ensure_future(Reflector(calls, resource_for(Pod), informer).run())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await create_all(calls, workload.cluster(NODES))
            await informer.synced.wait()
            durations = [await _bind(calls, bindings, workload, number) for number in range(PODS + PODS // 10)]
        return durations[PODS // 10 :]
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await calls.close()


class Bindings:
    """When pods were seen to be bound, by name."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, asyncio.Future[float]] = defaultdict(asyncio.Future)

    def pod_changed(self, _: Pod | None, after: Pod | None) -> None:
        if after is not None and after.spec.node_name and not self._seen[after.metadata.name].done():
            self._seen[after.metadata.name].set_result(time.perf_counter())

    async def of(self, name: str) -> float:
        return await self._seen[name]


async def _bind(calls: ApiCalls, bindings: Bindings, workload: BenchmarkWorkload, number: int) -> float:
    *claims, pod = workload.pod(number, "dralloc")
    await create_all(calls, claims)
    await asyncio.sleep(PAUSE_S)
    began = time.perf_counter()
    await calls.create(resource_for(Pod), pod)
    return await bindings.of(pod["metadata"]["name"]) - began
