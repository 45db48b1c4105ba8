"""Gangs: how long it takes to decide about them. The cluster is in memory, nothing is written; times are those of the processor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from random import Random

from msgspec.structs import replace

from bench.measurement import Figure, benchmark
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceRequest
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.gang_cycle import GangCycle, GangDecision, GangPlacement, GangRejection, GangRequest
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing import builders as build

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU_MEMORY = 80


class _Cluster:
    """Nodes with GPUs that can be shared by memory, and the pods of gangs."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.state.class_changed(None, build.device_class("gpu"))
        gates = FeatureGates.parse("")
        numbers = count()
        self.cycle = GangCycle(self.state, Cycle(self.state, gates), gates, lambda: f"share-{next(numbers)}")
        self._revisions = count(1)

    def add_node(self, name: str, gpus: int, cpu: int = 64, memory: int | None = None, zone: str = "") -> None:
        allocatable = {"cpu": str(cpu), "memory": "1Ti", "pods": "2000"}
        document = {"metadata": {"name": name, "labels": {"zone": zone}}, "status": {"allocatable": allocatable}}
        self.state.node_changed(None, decode(encode(document), Node))
        capacity = {"memory": str(memory)} if memory is not None else None
        devices = [
            build.device(
                f"gpu-{number}",
                capacity=capacity,
                shareable=True if memory is not None else None,
                attributes={"numa": number // 4},
            )
            for number in range(gpus)
        ]
        if devices:
            self.state.slice_changed(None, build.resource_slice(name, *devices, pool=name, node_name=name))

    def add_claim(self, name: str, request: DeviceRequest, *, match: bool = False) -> None:
        constraints = [build.match(f"{build.DRIVER}/numa")] if match else []
        claim = build.claim(name, request, constraints=constraints)
        metadata = replace(claim.metadata, uid=f"uid-{name}", resource_version=str(next(self._revisions)))
        self.state.claim_changed(None, replace(claim, metadata=metadata))

    def decide(self, pods: list[Pod]) -> tuple[float, GangDecision]:
        started_s = time.process_time()
        decision = self.cycle.decide(GangRequest(tuple(pods), len(pods)), NOW)
        return time.process_time() - started_s, decision


def _pod(name: str, cpu: str, *claims: str) -> Pod:
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
        },
    }
    return decode(encode(document), Pod)


def one_shared_claim() -> float:
    """Seconds for a gang of 1,000 pods on one claim."""
    cluster = _Cluster()
    for number in range(50):
        cluster.add_node(f"node-{number}", 0)
    fabric = build.resource_slice("fabric", build.device("tpu"), pool="fabric", all_nodes=True)
    cluster.state.slice_changed(None, fabric)
    cluster.add_claim("shared", build.request("r", device_class="gpu"))
    seconds, decision = cluster.decide([_pod(f"pod-{number}", "1", "shared") for number in range(1000)])
    assert isinstance(decision, GangPlacement)
    return seconds


def many_gangs(gangs: int = 100, size: int = 32, nodes: int = 500) -> float:
    """Pods a second for gangs with a device for each pod."""
    cluster = _Cluster()
    for number in range(nodes):
        cluster.add_node(f"node-{number}", 8)
    seconds = 0.0
    for gang in range(gangs):
        names = [f"gang-{gang}-{number}" for number in range(size)]
        for name in names:
            cluster.add_claim(name, build.request("r", device_class="gpu"))
        took_s, decision = cluster.decide([_pod(name, "1", name) for name in names])
        assert isinstance(decision, GangPlacement)
        seconds += took_s
    return gangs * size / seconds


def near_full(seed: int, nodes: int = 32, pods: int = 64) -> tuple[float, GangDecision]:
    """A random gang that needs about as much as nodes of different sizes have left."""
    random = Random(seed)
    cluster = _Cluster()
    memory = GPU_MEMORY if seed % 2 else None
    left = 0.0
    for number in range(nodes):
        gpus, cores = random.randint(1, 6 if memory is None else 1), random.choice((16, 32, 64))
        cluster.add_node(f"node-{number}", gpus, cores, memory)
        left += gpus
    shapes = list(_shapes(random, memory))
    names: list[tuple[str, str]] = []
    wanted = 0.0
    for number in range(pods):
        rest = (left - wanted) / (pods - number)
        size, cpu, request, match = min(
            random.sample(shapes, min(2, len(shapes))), key=lambda shape: abs(shape[0] - rest)
        )
        wanted += size
        name = f"pod-{number}"
        cluster.add_claim(name, request, match=match)
        names.append((name, cpu))
    return cluster.decide([_pod(name, cpu, name) for name, cpu in names])


def _shapes(random: Random, memory: int | None) -> Iterator[tuple[float, str, DeviceRequest, bool]]:
    for _ in range(random.randint(2, 5)):
        cpu = random.choice(("1", "2", "4", "8"))
        if memory is None:
            devices = random.choice((1, 1, 2, 2, 3, 4))
            yield devices, cpu, build.request("r", device_class="gpu", count=devices), random.random() < 0.3
        else:
            amount = random.choice((10, 20, 30, 40, 50, 60, 80))
            yield amount / memory, cpu, build.request("r", device_class="gpu", capacity={"memory": str(amount)}), False


@benchmark("gangs")
def gangs() -> Iterator[Figure]:
    yield Figure("1,000 pods on one claim", one_shared_claim(), "s", target=3.0, more_is_better=False)
    yield Figure("100 gangs of 32 on 500 nodes", many_gangs(), "pods/s", target=200, more_is_better=True)
    for name, seeds in (("50", range(50)), ("200 others", range(1_000, 1_200))):
        answers = [near_full(seed) for seed in seeds]
        slowest_s = max(seconds for seconds, _ in answers)
        undecided = sum(isinstance(found, GangRejection) and found.is_undecided for _, found in answers)
        placed = sum(isinstance(found, GangPlacement) for _, found in answers)
        yield Figure(f"near-full, slowest of {name}", slowest_s * 1000, "ms", target=200, more_is_better=False)
        yield Figure(f"near-full, budget used up of {name}", undecided, "gangs", target=0, more_is_better=False)
        yield Figure(f"near-full, placed of {name}", placed, "gangs")
