"""Start-up and memory of server, scheduler and controllers on large clusters.

    make bench ARGS=scale NODES=5000,10000,20000     nodes with 8 devices each, 10 pods on each, 8 of them with a claim
    make bench ARGS=scale-one-claim PODS=12500,50000 pods on one claim

The data directory is written by a store, not by requests: a cluster of 200,000 pods would take hours of requests to make. Each object is
a copy of one that a server, a scheduler and a job's claim made, with another name and UID.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.measurement import Figure, benchmark
from bench.processes import cpu_s, memory_mb, peak_memory_mb
from dralloc.client.api_calls import ApiCalls
from dralloc.client.http_transport import HttpTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.kubeconfig import read_kubeconfig
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.controller_set import WITHOUT_NODES
from dralloc.kube.pod_v1 import Pod
from dralloc.server.server_process import STORE_FILE
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.sqlite import SqliteStore
from dralloc.testing.benchmark_workloads import NAMESPACE, NODE_PODS_MAX, WORKLOADS
from dralloc.testing.cluster import ClusterSettings, cluster_in_process
from dralloc.testing.throughput import Scale, create_all, measure

NODES: Final = (1_000, 2_000)
PODS: Final = (5_000, 10_000)
PODS_WITH_CLAIM: Final = 8
PODS_WITHOUT_CLAIM: Final = 2
CONCURRENT: Final = 500
TIMEOUT_S: Final = 300.0
LOOK_S: Final = 0.02


@benchmark("scale")
def scale() -> Iterator[Figure]:
    for nodes in _sizes("NODES", NODES):
        yield from started_on(f"{nodes:,} nodes", lambda made, nodes=nodes: made.nodes(nodes))  # type: ignore[misc]


@benchmark("scale-one-claim")
def scale_one_claim() -> Iterator[Figure]:
    for pods in _sizes("PODS", PODS):
        yield from started_on(f"{pods:,} pods on one claim", lambda made, pods=pods: made.one_claim(pods))  # type: ignore[misc]


def _sizes(variable: str, default: Sequence[int]) -> Sequence[int]:
    return tuple(map(int, os.environ[variable].split(","))) if variable in os.environ else default


# --- the data directory ---------------------------------------------------------------------------------------------


Stored = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Sample:
    """One stored object, to be copied: its key and value, with the names in them that copies replace."""

    key: str
    value: bytes

    def copy(self, replaced: dict[str, str]) -> Stored:
        key, value = self.key, self.value
        for name, other in replaced.items():
            key, value = key.replace(name, other), value.replace(name.encode(), other.encode())
        return key, value


class Samples:
    """Objects as a server stores them after a scheduler has bound a pod."""

    def __init__(self, records: dict[str, bytes]) -> None:
        self._records = records
        self._uids = 0

    def nodes(self, count: int) -> Iterator[Stored]:
        yield from self._others("deviceclasses")
        for node in range(count):
            yield self._copy("/nodes/", {"node-0": f"node-{node}"})
            yield self._copy("/resourceslices.", {"node-0": f"node-{node}"})
            for slot in range(PODS_WITH_CLAIM):
                number = node * PODS_WITH_CLAIM + slot
                uid = self._new_uid()
                names = {"node-0": f"node-{node}", "pod-0": f"pod-{number}", "device-0": f"device-{slot}"}
                yield self._copy("/resourceclaims.", {**names, self._uid("/pods/"): uid})
                yield self._copy("/pods/", names, uid)
            for slot in range(PODS_WITHOUT_CLAIM):
                yield self._copy("/pods/", {"node-0": f"node-{node}", "pod-0": f"other-{node}-{slot}"})

    def one_claim(self, pods: int) -> Iterator[Stored]:
        yield from self._others("deviceclasses", "resourceslices", "resourceclaims")
        for node in range(-(-pods // NODE_PODS_MAX)):
            yield self._copy("/nodes/", {"node-0": f"node-{node}"})
        for number in range(pods):
            yield self._copy("/pods/", {"node-0": f"node-{number // NODE_PODS_MAX}", "pod-0": f"pod-{number}"})

    def _others(self, *plurals: str) -> Iterator[Stored]:
        for key, value in self._records.items():
            if any(f"/registry/{plural}" in key for plural in plurals):
                yield key, value

    def _copy(self, part: str, replaced: dict[str, str], uid: str = "") -> Stored:
        key = self._key(part)
        return Sample(key, self._records[key]).copy({**replaced, self._uid(part): uid or self._new_uid()})

    def _key(self, part: str) -> str:
        return next(key for key in self._records if part in key)

    def _uid(self, part: str) -> str:
        value = self._records[self._key(part)]
        return value.partition(b'"uid":"')[2].partition(b'"')[0].decode()

    def _new_uid(self) -> str:
        self._uids += 1
        return f"{self._uids:08x}-0000-4000-8000-{self._uids:012x}"


async def samples(workload: str) -> Samples:
    """The objects of a cluster with one node and one bound pod."""
    async with MemoryStore() as store, cluster_in_process(ClusterSettings(controllers=()), store=store) as cluster:
        await cluster.components.guard(measure(cluster.transport, WORKLOADS[workload], Scale(nodes=1, pods=1)))
        page = await store.list_prefix("/registry/")
        return Samples({record.key: record.value for record in page.records})


async def write_directory(directory: Path, objects: Iterator[Stored]) -> int:
    count = 0
    async with await SqliteStore.open(directory / STORE_FILE) as store:
        while batch := list(islice(objects, CONCURRENT)):
            await asyncio.gather(*(store.create(key, value) for key, value in batch))
            count += len(batch)
    return count


# --- start ----------------------------------------------------------------------------------------------------------


def started_on(what: str, choose: Callable[[Samples], Iterator[Stored]]) -> Iterator[Figure]:
    """Start the components one after the other on a cluster that exists, and measure each when it has come to rest."""
    workload = "one-job" if "one claim" in what else "plain"
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        made = runner.run(samples(workload))
        count = runner.run(write_directory(Path(directory), choose(made)))
        kubeconfig = Path(directory) / "kubeconfig"
        server = (
            "apiserver",
            "--insecure-http",
            "--port",
            "0",
            "--data-dir",
            directory,
            "--kubeconfig",
            str(kubeconfig),
        )
        scheduler = ("scheduler", "--kubeconfig", str(kubeconfig))
        controllers = ("controllers", "--kubeconfig", str(kubeconfig), "--only", ",".join(WITHOUT_NODES))
        yield Figure(f"{what}: objects", count, "")
        with component(server) as started:
            yield from _figures(f"{what}, server", started, started.said_ready_s)
            with component(scheduler) as started:
                runner.run(until_bound(kubeconfig))
                yield from _figures(f"{what}, scheduler", started, started.age_s)
            with component(controllers) as started:
                runner.run(until_claimed(kubeconfig))
                yield from _figures(f"{what}, controllers", started, started.age_s)


@dataclass(slots=True)
class StartedComponent:
    pid: int
    began: float
    said_ready_s: float

    @property
    def age_s(self) -> float:
        return time.perf_counter() - self.began


@contextmanager
def component(arguments: Sequence[str]) -> Iterator[StartedComponent]:
    """The component inside the block, after it has printed its address."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "dralloc", *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any(" on http" in line for line in process.stdout), f"{arguments[0]} ended"
            yield StartedComponent(process.pid, began, time.perf_counter() - began)
        finally:
            process.terminate()
            process.communicate()


def _figures(what: str, started: StartedComponent, ready_s: float) -> Iterator[Figure]:
    _wait_until_idle(started.pid)
    yield Figure(f"{what}: ready", ready_s, "s")
    yield Figure(f"{what}: processor time", cpu_s(started.pid), "s")
    yield Figure(f"{what}: memory", memory_mb(started.pid), "MB")
    yield Figure(f"{what}: peak memory", peak_memory_mb(started.pid), "MB")


def _wait_until_idle(pid: int) -> None:
    spent = -1.0
    while cpu_s(pid) > spent + 0.02:
        spent = cpu_s(pid)
        time.sleep(0.5)


async def until_bound(kubeconfig: Path) -> None:
    """A pod without claims is bound as soon as the scheduler knows everything."""
    await _until(kubeconfig, _probe("probe-scheduler", {}), lambda pod: bool(pod.spec.node_name))


async def until_claimed(kubeconfig: Path) -> None:
    claims = {"resourceClaims": [{"name": "device", "resourceClaimTemplateName": "probe"}]}
    probe = _probe("probe-controllers", claims)
    spec = {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": "plain"}}]}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "probe", "namespace": NAMESPACE},
        "spec": {"spec": spec},
    }
    await _until(kubeconfig, (template, *probe), lambda pod: bool(pod.status.resource_claim_statuses))


def _probe(name: str, more: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    spec = {"schedulerName": "dralloc", "containers": [{"name": "pause", "image": "pause"}], **more}
    metadata = {"name": name, "namespace": NAMESPACE}
    return ({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},)


async def _until(kubeconfig: Path, documents: Sequence[dict[str, Any]], is_done: Callable[[Pod], bool]) -> None:
    calls = ApiCalls(HttpTransport(read_kubeconfig(kubeconfig)), field_manager="")
    try:
        await create_all(calls, documents)
        key = ObjectKey(NAMESPACE, documents[-1]["metadata"]["name"])
        async with asyncio.timeout(TIMEOUT_S):
            while not is_done(await calls.get(resource_for(Pod), key)):
                await asyncio.sleep(LOOK_S)
    finally:
        await calls.close()
