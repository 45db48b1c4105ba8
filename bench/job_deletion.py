"""The deletion of a job whose pods share one claim: what it costs each component.

make bench ARGS=job-deletion PODS=2500,5000,10000,20000
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.measurement import Figure, benchmark
from bench.processes import components, cpu_s
from dralloc.client.api_calls import ApiCalls
from dralloc.client.http_transport import HttpTransport
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.kubeconfig import read_kubeconfig
from dralloc.client.reflector import Reflector
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.jobs.plan import SHARED_CLAIMS
from dralloc.kube.batch_v1 import Job
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing.benchmark_targets import local_cluster
from dralloc.testing.benchmark_workloads import NAMESPACE, NODE_PODS_MAX, WORKLOADS
from dralloc.testing.throughput import create_all

SIZES: Final = (2_500, 10_000)
CPU_GOAL_S: Final = 3.0
GOAL_SIZE: Final = 10_000
JOB: Final = "training"
TIMEOUT_S: Final = 300.0
LOOK_S: Final = 0.02

PODS: Final = resource_for(Pod)
CLAIMS: Final = resource_for(ResourceClaim)


@benchmark("job-deletion")
def job_deletion() -> Iterator[Figure]:
    for pods in _sizes():
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for component, spent in runner.run(delete_job(pods)).items():
                goal = CPU_GOAL_S if (component, pods) == ("controllers", GOAL_SIZE) else None
                yield Figure(f"delete a job of {pods:,} pods on one claim: {component}", spent, "s", goal)


def _sizes() -> tuple[int, ...]:
    return tuple(map(int, os.environ["PODS"].split(","))) if "PODS" in os.environ else SIZES


async def delete_job(pods: int) -> Mapping[str, float]:
    """Returns the processor time of each component from the deletion of the job until pods and claim are gone, and how long it took."""
    with (
        tempfile.TemporaryDirectory() as directory,
        local_cluster(Path(directory), with_controllers=True) as kubeconfig,
    ):
        calls = ApiCalls(HttpTransport(read_kubeconfig(kubeconfig)), field_manager="")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await _delete_job(calls, pods)
        finally:
            await calls.close()


async def _delete_job(calls: ApiCalls, pods: int) -> Mapping[str, float]:
    await create_all(calls, WORKLOADS["one-job"].cluster(-(-pods // NODE_PODS_MAX)))
    await create_all(calls, _job(pods))
    async with _watched_pods(calls) as watched:
        while sum(bool(pod.spec.node_name) for pod in watched.all()) < pods:
            await asyncio.sleep(LOOK_S * 10)
        before, began = {name: cpu_s(pid) for name, pid in components().items()}, time.perf_counter()
        await calls.delete(resource_for(Job), ObjectKey(NAMESPACE, JOB), propagation="Background")
        while watched.all():
            await asyncio.sleep(LOOK_S)
    while (await calls.list_all(CLAIMS, namespace=NAMESPACE, page_size=500, label_selector="of=job"))[0]:
        await asyncio.sleep(LOOK_S)
    took = time.perf_counter() - began
    return {**{name: cpu_s(pid) - before[name] for name, pid in components().items()}, "until all is gone": took}


@asynccontextmanager
async def _watched_pods(calls: ApiCalls) -> AsyncIterator[Informer[Pod]]:
    informer: Informer[Pod] = Informer()
    watching = asyncio.ensure_future(Reflector(calls, PODS, informer, namespace=NAMESPACE).run())
    try:
        await informer.synced.wait()
        yield informer
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _job(pods: int) -> Iterator[dict[str, Any]]:
    """The job, and the template of the claim that its pods share."""
    devices = {"requests": [{"name": "device", "exactly": {"deviceClassName": "plain"}}]}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "devices", "namespace": NAMESPACE},
        "spec": {"metadata": {"labels": {"of": "job"}}, "spec": {"devices": devices}},
    }
    *_, pod = WORKLOADS["one-job"].pod(0, "dralloc")
    spec = {
        **pod["spec"],
        "resourceClaims": [{"name": "devices", "resourceClaimName": "of-job"}],
        "restartPolicy": "Never",
    }
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": JOB, "namespace": NAMESPACE, "annotations": {SHARED_CLAIMS: "of-job=devices"}},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}},
    }
