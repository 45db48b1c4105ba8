"""Duration of allocations: recorded problems, hard problems, crowded nodes, large clusters.

Caches are warm, as in a scheduler: the snapshot exists, and slices have been used before. The shortest of several runs
counts, because other load on the machine must not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from msgspec import structs

from bench.measurement import Figure, benchmark, best_time_s
from dralloc.conformance.allocation import read_line
from dralloc.conformance.vector_family import read_lines
from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.allocator.stamp import stamp
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import (
    FIRST_FIT,
    LEAST_AVAILABLE,
    MOST_AVAILABLE,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
)
from dralloc.testing.builders import allocation, claim, device, device_class, held, node, request, resource_slice

VECTORS = Path(__file__).parent.parent / "tests" / "vectors"
CLASSES = {"gpu": device_class(where='device.driver == "gpu.example.com"')}
DEVICES_PER_NODE = 8
MICROSECOND = 1e-6
MILLISECOND = 1e-3


@benchmark("allocator-recorded")
def recorded() -> Iterator[Figure]:
    """The problems with recorded answers of Kubernetes."""
    problems = [read_line(text)[1] for text in read_lines(VECTORS / "allocation.jsonl.gz")]
    search = [_warm_time_s(problem) for problem in problems]
    compiling = [_compile_time_s(problem) for problem in problems]
    yield Figure("median", median(search) / MICROSECOND, "µs", target=150)
    whole = [one + other for one, other in zip(search, compiling, strict=True)]
    yield Figure("median, with reading the claims", median(whole) / MICROSECOND, "µs", target=150)
    yield Figure("99th percentile", sorted(search)[len(search) * 99 // 100] / MICROSECOND, "µs")
    yield Figure("longest", max(search) / MILLISECOND, "ms")


@benchmark("allocator-hard")
def hard() -> Iterator[Figure]:
    """Combinatorial problems: Kubernetes does not finish 27 of them in 5 s."""
    times = [_warm_time_s(read_line(text)[1]) for text in read_lines(VECTORS / "allocation-hard.jsonl.gz")]
    yield Figure("longest of 88", max(times) / MILLISECOND, "ms", target=50)
    yield Figure("all 88", sum(times) / MILLISECOND, "ms")


@benchmark("allocator-shares")
def shares() -> Iterator[Figure]:
    """One more share on a node with 128 shareable devices and 1,000 allocated shares."""
    memory = {"memory": "80Gi"}
    gpus = resource_slice("gpus", *(device(f"gpu-{n:03}", capacity=memory, shareable=True) for n in range(128)))
    held_shares = [_share(number, f"gpu-{number % 125:03}") for number in range(1_000)]
    snapshot = Snapshot.of(slices=[gpus], claims=held_shares, nodes=[node()])
    demand = compile_demand([claim("new", request("r", capacity={"memory": "30Gi"}))], CLASSES, Features())
    problem = AllocationProblem(demand, node(), snapshot)
    outcome = allocate(problem)
    assert isinstance(outcome, Allocated)
    assert outcome.claims[0].devices[0].device.device == "gpu-125"
    yield Figure("one share", _warm_time_s(problem) / MILLISECOND, "ms", target=1)
    given = claim("new", allocation=stamp(outcome.claims[0], lambda: "share"))
    yield Figure("and its usage in the snapshot", best_time_s(lambda: snapshot.with_claim(given)) / MICROSECOND, "µs")


@benchmark("allocator-preference")
def preference() -> Iterator[Figure]:
    """One more share on such a node, by each preference: where first fit comes late, and after every change of the usage."""
    memory = {"memory": "80Gi"}
    gpus = resource_slice("gpus", *(device(f"gpu-{n:03}", capacity=memory, shareable=True) for n in range(128)))
    held_shares = [_share(number, f"gpu-{number % 125:03}") for number in range(1_000)]
    snapshot = Snapshot.of(slices=[gpus], claims=held_shares, nodes=[node()])
    features = replace(Features(), device_preference=True)
    problems: dict[str, AllocationProblem] = {}
    for prefer in (FIRST_FIT, LEAST_AVAILABLE, MOST_AVAILABLE):
        asked = request("r", capacity={"memory": "30Gi"}, prefer=prefer)
        problems[prefer] = AllocationProblem(compile_demand([claim("new", asked)], CLASSES, features), node(), snapshot)
    times = {prefer: _warm_time_s(problem, repeats=50) for prefer, problem in problems.items()}
    fresh = {prefer: _changed_usage_time_s(problem) for prefer, problem in problems.items()}
    for prefer in (LEAST_AVAILABLE, MOST_AVAILABLE):
        yield Figure(f"{prefer} to {FIRST_FIT}", times[prefer] / times[FIRST_FIT], "×", target=2)
        yield Figure(f"{prefer} to {FIRST_FIT}, other usage", fresh[prefer] / fresh[FIRST_FIT], "×", target=2)


def _changed_usage_time_s(problem: AllocationProblem) -> float:
    """An allocation with a usage that no allocation has seen."""
    problems = (
        structs.replace(problem, snapshot=problem.snapshot.with_claim(_share(10_000 + number, "gpu-000")))
        for number in range(50)
    )
    return min(best_time_s(partial(allocate, each), 1) for each in problems)


@benchmark("allocator-aggregated")
def aggregated() -> Iterator[Figure]:
    """A capacity of several of 128 shareable devices together."""
    nics = resource_slice(
        "nics", *(device(f"nic-{n:03}", capacity={"bandwidth": f"{n % 7 + 1}G"}, shareable=True) for n in range(128))
    )
    snapshot = Snapshot.of(slices=[nics], nodes=[node()])
    features = replace(Features(), aggregated_capacity=True)
    for total in ("10G", "100G", "300G"):
        asked = request("r", together=True, count=32, capacity={"bandwidth": total})
        demand = compile_demand([claim("new", asked)], CLASSES, features)
        yield Figure(f"{total} together", _warm_time_s(AllocationProblem(demand, node(), snapshot)) / MILLISECOND, "ms")


def _share(number: int, name: str) -> ResourceClaim:
    result = held(name, share_id=f"share-{number}", consumed={"memory": "10Gi"})
    return claim(f"held-{number}", allocation=allocation(result))


@benchmark("allocator-cluster")
def cluster() -> Iterator[Figure]:
    """One device for a pod, in a small cluster and in a large one: the size must not matter."""
    for kind, slices_of in (("on nodes", _local_slices), ("behind a network", _network_slices)):
        small, large = (_one_device_time_s(slices_of(count)) for count in (1_000, 100_000))
        yield Figure(f"one of 1,000 devices {kind}", small / MICROSECOND, "µs")
        yield Figure(f"one of 100,000 devices {kind}", large / MICROSECOND, "µs")
        yield Figure(f"devices {kind}: large to small", large / small, "×", target=2)


@benchmark("allocator-deltas")
def deltas() -> Iterator[Figure]:
    """The cost of changes in a cluster of 100,000 devices."""
    slices = list(_local_slices(100_000))
    built = Snapshot()

    def build() -> None:
        nonlocal built
        built = Snapshot.of(slices=slices)

    yield Figure("building it", best_time_s(build, repeats=1), "s")
    holder = claim("c", allocation=allocation(held("gpu-3", pool="node-77")))
    yield Figure("a claim is allocated", best_time_s(lambda: built.with_claim(holder)) / MICROSECOND, "µs")
    changed = resource_slice("node-77", device("gpu-0"), pool="node-77", node_name="node-77")
    yield Figure("a slice changes", best_time_s(lambda: built.with_slice(changed)) / MICROSECOND, "µs")


def _local_slices(devices: int) -> Iterable[ResourceSlice]:
    """Eight devices on every node, one pool per node, as drivers publish them."""
    for number in range(devices // DEVICES_PER_NODE):
        gpus = (device(f"gpu-{each}", attributes={"numa": each // 4}) for each in range(DEVICES_PER_NODE))
        yield resource_slice(f"node-{number}", *gpus, pool=f"node-{number}", node_name=f"node-{number}")


def _network_slices(devices: int) -> Iterable[ResourceSlice]:
    """Pools of 128 devices that every node can use."""
    for number in range(devices // 128):
        gpus = (device(f"gpu-{each}") for each in range(128))
        yield resource_slice(f"pool-{number:04}", *gpus, pool=f"pool-{number:04}", all_nodes=True)


def _one_device_time_s(slices: Iterable[ResourceSlice]) -> float:
    snapshot = Snapshot.of(slices=slices)
    demand = compile_demand([claim("new", request("r"))], CLASSES, Features())
    problem = AllocationProblem(demand, node("node-5"), snapshot)
    outcome = allocate(problem)
    assert isinstance(outcome, Allocated)
    return _warm_time_s(problem, repeats=200)


def _warm_time_s(problem: AllocationProblem, repeats: int = 5) -> float:
    allocate(problem)
    return best_time_s(lambda: allocate(problem), repeats)


def _compile_time_s(problem: AllocationProblem) -> float:
    demand = problem.demand
    claims = [ResourceClaim(spec=ResourceClaimSpec(devices=found.devices)) for found in demand.claims]
    classes = {found.device_class.metadata.name or "": found.device_class for found in demand.alternatives}
    return best_time_s(lambda: compile_demand(claims, classes, demand.features), repeats=3)
