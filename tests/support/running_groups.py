"""Groups of pods in a running cluster: a node with devices, members, and what tests wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.scheduler.settings import NAME
from dralloc.testing.builders import device, device_class, request, resource_slice
from tests.support.running_cluster import RunningCluster
from tests.support.scheduled_cluster import node
from tests.support.workloads import claim_template, pod, template

GROUPS = "GenericWorkload=true,DRAWorkloadResourceClaims=true"
JOBS = f"{GROUPS},WorkloadWithJob=true"
SHARED = {"shared": template("t")}
OWN = {"own": template("t")}


async def create_node(cluster: RunningCluster, devices: int = 2) -> None:
    gpus = resource_slice("gpus", *(device(f"gpu-{n}") for n in range(devices)), pool="node-a", node_name="node-a")
    await cluster.create(device_class(), node("node-a", cpu="1000", pods="1000"), gpus)
    await cluster.create(claim_template("t", request()))


def member(name: str, claims: dict[str, Any] | None = None, group: str = "g") -> dict[str, Any]:
    return pod(name, SHARED if claims is None else claims, group=group, scheduler=NAME)


async def group_where(cluster: RunningCluster, matches: Callable[[PodGroup], Any], name: str = "g") -> PodGroup:
    found = await cluster.until(PodGroup, name, lambda group: group is not None and matches(group))
    assert found is not None
    return found


async def shared_claim(cluster: RunningCluster, name: str = "g") -> ResourceClaim:
    group = await group_where(cluster, lambda group: group.status.resource_claim_statuses, name)
    made = group.status.resource_claim_statuses[0].resource_claim_name
    assert made is not None
    return await cluster.claim(made)
