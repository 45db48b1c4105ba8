"""Gangs end to end: API server, scheduler and controllers in processes of their own, over HTTP, with a SQLite store.

    make bench ARGS=gangs-http

The time is from the first create to the last bind, so it contains the creation of pods, groups and claims.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.measurement import Figure, benchmark
from dralloc.testing.benchmark_targets import local_cluster, measure_at
from dralloc.testing.benchmark_workloads import NAMESPACE, WORKLOADS, BenchmarkWorkload, ClaimSource, Document
from dralloc.testing.throughput import Scale, Throughput

GATES = "GenericWorkload=true,DRAWorkloadResourceClaims=true"


@dataclass(frozen=True, slots=True)
class GangWorkload(BenchmarkWorkload):
    """Gangs of `size` pods. If all pods share one claim, it is that of their group, made from a template."""

    size: int = 32

    def pod(self, number: int, scheduler_name: str) -> tuple[Document, ...]:
        # Named, because a dataclass with slots is not the class that `super()` without arguments refers to.
        *before, pod = BenchmarkWorkload.pod(self, number, scheduler_name)
        group = f"gang-{number // self.size}"
        pod["spec"]["schedulingGroup"] = {"podGroupName": group}
        if self.is_shared:
            pod["spec"]["resourceClaims"] = [_shared_entry()]
        return (*((self._group(group),) if number % self.size == 0 else ()), *before, pod)

    @property
    def is_shared(self) -> bool:
        return self.claims is ClaimSource.ONE

    def cluster(self, nodes: int) -> Iterator[Document]:
        yield from BenchmarkWorkload.cluster(self, nodes)
        if self.is_shared:
            yield {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": "shared", "namespace": NAMESPACE},
                "spec": {"spec": self.claim},
            }

    def _group(self, name: str) -> Document:
        return {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": self.size}},
                **({"resourceClaims": [_shared_entry()]} if self.is_shared else {}),
            },
        }


def _shared_entry() -> Document:
    return {"name": "devices", "resourceClaimTemplateName": "shared"}


def gangs_of(workload: str, size: int) -> GangWorkload:
    plain = WORKLOADS[workload]
    return GangWorkload(plain.name, plain.devices, plain.classes, plain.claim, plain.claims, size)


def run(workload: GangWorkload, scale: Scale) -> Throughput:
    with (
        tempfile.TemporaryDirectory() as directory,
        local_cluster(Path(directory), with_controllers=True, gates=GATES) as kubeconfig,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(measure_at(kubeconfig, workload, scale))


@benchmark("gangs-http")
def gangs_over_http() -> Iterator[Figure]:
    one = run(gangs_of("one-claim", 1_000), Scale(nodes=50, pods=1_000))
    yield Figure("1,000 pods of a gang on one claim, create to bound", one.seconds, "s", target=3.0)
    yield Figure("the part until the last pod is created", one.creating_s, "s")
    many = run(gangs_of("plain", 32), Scale(nodes=500, pods=3_200))
    yield Figure("100 gangs of 32 on 500 nodes", many.pods_per_s, "pods/s", target=200, more_is_better=True)
