"""Small random clusters, and the cheapest victims in them by brute force: every set of pods is tried on a cluster that is built
without them. Shares nothing with the planner but the cycle, which says whether a pod fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations
from random import Random
from typing import Any

from msgspec.structs import replace

from dralloc.kube.codec import convert
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.policy_v1 import PodDisruptionBudget
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim, ResourceClaimStatus, ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import Placement, Rejection
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing.builders import claim, device, device_class, match, request, resource_slice
from tests.scheduler.cluster_values import NOW
from tests.support.scheduled_cluster import node

GATES = FeatureGates.defaults()
FINALIZER = "resource.kubernetes.io/delete-protection"
HIGH = 100


def pod_of(name: str, *claims: str, priority: int = 0, cpu: str = "0", started: int | None = None, **more: Any) -> Pod:
    spec = {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
        "priority": priority,
        "schedulerName": "dralloc",
        **more,
    }
    status = {} if started is None else {"startTime": f"2025-12-31T00:00:{started:02}Z"}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "labels": {"app": name[:1]}}
    return convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


@dataclass
class World:
    nodes: list[Node] = field(default_factory=list)
    slices: list[ResourceSlice] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    budgets: list[PodDisruptionBudget] = field(default_factory=list)

    def state(self, gone: Iterable[str] = ()) -> ClusterState:
        """The cluster after these pods are gone and the claim controller has released what they leave."""
        gone = frozenset(gone)
        state = ClusterState()
        for offered in self.nodes:
            state.node_changed(None, offered)
        state.class_changed(None, device_class())
        for published in self.slices:
            state.slice_changed(None, published)
        for stored in self.claims.values():
            state.claim_changed(None, _released(stored, gone))
        for name, pod in self.pods.items():
            if name not in gone:
                state.pod_changed(None, pod)
        for budget in self.budgets:
            state.budgets.changed(None, budget)
        return state

    def placement(self, pod: Pod, gone: Iterable[str] = ()) -> Placement | None:
        return Cycle(self.state(gone), GATES).placement(pod, NOW)

    def fits(self, pod: Pod, gone: Iterable[str] = ()) -> bool:
        """True if a node takes the pod. An error of a device on another node does not matter to a nominated pod."""
        cycle = Cycle(self.state(gone), GATES)
        attempt = cycle.begin(pod)
        if isinstance(attempt, Rejection):
            return False
        return any(cycle.place_on(attempt, each.metadata.name, NOW) is not None for each in self.nodes)

    def place(self, pod: Pod) -> bool:
        """Adds the pod where the scheduler puts it, with its claims as they are stored then."""
        placement = self.placement(pod)
        if placement is None:
            return False
        self.pods[pod.metadata.name] = replace(pod, spec=replace(pod.spec, node_name=placement.node))
        consumer = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        ids = iter(range(1000))
        for claim_id, allocation in placement.commit(lambda: f"{pod.metadata.name}-{next(ids)}").allocations.items():
            known = self.claims[claim_id.name]
            consumers = (*known.status.reserved_for, known.spec.reserved_for or consumer)
            status = ResourceClaimStatus(allocation=allocation, reserved_for=tuple(dict.fromkeys(consumers)))
            metadata = replace(known.metadata, finalizers=(FINALIZER,))
            self.claims[claim_id.name] = replace(known, metadata=metadata, status=status)
        return True

    # --- Brute force --------------------------------------------------------------------------------------------------

    def cost(self, names: Iterable[str]) -> tuple[float, ...]:
        """Budgets that are exceeded, the highest priority, the sum, the number, and for how long the first of the highest runs."""
        pods = [self.pods[name] for name in names]
        exceeded = sum(max(sum(map(each.selects, pods)) - each.status.disruptions_allowed, 0) for each in self.budgets)
        priorities = [each.spec.priority or 0 for each in pods]
        highest = max(priorities)
        starts = [each.status.start_time or "9" for each in pods if (each.spec.priority or 0) == highest]
        seconds = [int(start[-3:-1]) if start != "9" else float("inf") for start in starts]
        return exceeded, highest, sum(each + 2**31 for each in priorities), len(pods), -min(seconds)

    def cheapest(self, pod: Pod) -> tuple[float, ...] | None:
        """What the cheapest victims cost; None if no victims help."""
        lower = [name for name, each in self.pods.items() if (each.spec.priority or 0) < (pod.spec.priority or 0)]
        sets = chain.from_iterable(combinations(lower, size) for size in range(1, len(lower) + 1))
        costs = sorted((self.cost(names), names) for names in sets)
        return next((cost for cost, names in costs if self.fits(pod, names)), None)


def _released(stored: ResourceClaim, gone: frozenset[str]) -> ResourceClaim:
    kept = tuple(each for each in stored.status.reserved_for if each.name not in gone or each.resource != "pods")
    if kept == stored.status.reserved_for:
        return stored
    return replace(stored, status=replace(stored.status, reserved_for=kept) if kept else ResourceClaimStatus())


def random_world(random: Random) -> tuple[World, Pod]:
    """A full cluster of at most three nodes, and a pod of higher priority."""
    world = World()
    for number in range(random.randint(1, 3)):
        name = f"node-{number}"
        document = node(name, cpu=str(random.randint(1, 3)))
        world.nodes.append(convert(document, Node))
        world.slices.extend(_slices(random, name))
    for number in range(random.randint(4, 9)):
        world.place(_random_pod(random, world, f"{random.choice('ab')}{number}", random.randint(0, 3)))
    for app in "ab"[: random.randint(0, 2)]:
        world.budgets.append(budget(app, random.randint(0, 2)))
    pod = _random_pod(random, world, "preemptor", HIGH)
    for _ in range(random.randint(0, 8)):
        if not world.fits(pod) and world.fits(pod, world.pods):
            break
        pod = _random_pod(random, world, "preemptor", random.choice((2, HIGH)))
    return world, pod


def _slices(random: Random, name: str) -> Iterator[ResourceSlice]:
    devices = []
    for number in range(random.randint(1, 3)):
        attributes = {"model": random.choice(("old", "new"))}
        is_shared = random.random() < 0.4
        capacity = {"memory": random.choice(("10Gi", "20Gi"))}
        devices.append(device(f"d{number}", attributes=attributes, capacity=capacity, shareable=is_shared or None))
    if devices:
        yield resource_slice(name, *devices, pool=name, node_name=name)
    if name == "node-0" and random.random() < 0.4:
        draws = {"card": {"units": "2"}}
        halves = [device(f"half-{number}", draws={"card": {"units": "1"}}) for number in range(2)]
        whole = device("whole", draws=draws)
        per_pool = {"pool": "cards", "node_name": name, "of": 2}
        yield resource_slice("counters", counters={"card": {"units": "2"}}, **per_pool)  # type: ignore[arg-type]
        yield resource_slice("partitions", whole, *halves, **per_pool)  # type: ignore[arg-type]
    if name == "node-0" and random.random() < 0.3:
        yield resource_slice("network", device("nic-0"), device("nic-1"), pool="network", all_nodes=True)


def _random_pod(random: Random, world: World, name: str, priority: int) -> Pod:
    names: list[str] = []
    if random.random() < 0.7:
        shared = sorted(world.claims)
        if shared and random.random() < 0.25:
            names.append(random.choice(shared))
        else:
            names.append(f"claim-of-{name}")
            world.claims[names[0]] = _random_claim(random, names[0])
    cpu = random.choice(("0", "500m", "1") if name != "preemptor" else ("500m", "1", "2"))
    return pod_of(name, *names, priority=priority, cpu=cpu, started=random.choice((None, 1, 2, 3)))


def _random_claim(random: Random, name: str) -> ResourceClaim:
    where = random.choice(("", "", 'device.attributes["gpu.example.com"].model == "new"'))
    requests = [request("request", count=random.choice((1, 1, 2)), where=where)]
    if random.random() < 0.3:
        requests = [request("request", capacity={"memory": random.choice(("5Gi", "10Gi", "20Gi"))})]
    if random.random() < 0.2:
        requests.append(request("other"))
    constraints = [match("gpu.example.com/model")] if random.random() < 0.2 else []
    workload = ConsumerReference(api_group="batch", resource="jobs", name="job", uid="uid-of-job")
    reserved_for = workload if random.random() < 0.1 else None
    return claim(name, *requests, constraints=constraints, reserved_for=reserved_for)


def budget(app: str, allowed: int) -> PodDisruptionBudget:
    document = {
        "metadata": {"name": app, "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed},
    }
    return convert(document, PodDisruptionBudget)
