"""Plans of preemption for gangs: every plan is enough, and the cheapest one by an exhaustive search over all sets of victims."""

from __future__ import annotations

import os
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.kube.codec import convert
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.gang_cycle import GangCycle, GangRequest
from dralloc.scheduler.decide.gang_preemption import plan_for_gang
from dralloc.scheduler.decide.preemption_candidates import VictimCandidates
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing import builders as build
from tests.scheduler.decide.preemption_model import budget
from tests.support.gang_objects import NOW, ZONE, ShareIds, cluster_of, pods_of
from tests.support.plain_gangs import TooLarge
from tests.support.plain_preemption import HIGH, PlainPreemption, Resident, random_preemption

SEEDS = int(os.environ.get("DRALLOC_GANG_SEEDS", "200"))
GATES = FeatureGates.parse("GenericWorkload=true")


def state_of(world: PlainPreemption) -> ClusterState:
    state = cluster_of(world.gang)
    devices = {device.name: device for device in world.gang.devices}
    whole: dict[str, Any] = {
        "metadata": {"name": "whole", "namespace": "default", "uid": "uid-whole"},
        "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}},
    }
    state.group_changed(None, convert(whole, PodGroup))
    for resident in world.residents:
        results = [
            build.held(
                name,
                pool=devices[name].pool,
                share_id=f"share-{resident.name}-{name}" if memory is not None else None,
                consumed={"memory": str(memory)} if memory is not None else None,
            )
            for name, memory in resident.devices
        ]
        if results:
            state.claim_changed(None, _claim(resident, results))
        state.pod_changed(None, _pod(resident))
    for app, allowed in world.budgets.items():
        state.budgets.changed(None, budget(app, allowed))
    return state


def _claim(resident: Resident, results: list[Any]) -> ResourceClaim:
    made = build.claim(f"claim-of-{resident.name}", build.request(), allocation=build.allocation(*results))
    consumer = {"resource": "pods", "name": resident.name, "uid": f"uid-{resident.name}"}
    return convert(
        {
            "metadata": {
                "name": made.metadata.name,
                "namespace": "default",
                "uid": f"uid-{made.metadata.name}",
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            },
            "spec": made.spec,
            "status": {"allocation": made.status.allocation, "reservedFor": [consumer]},
        },
        ResourceClaim,
    )


def _pod(resident: Resident) -> Pod:
    name = resident.name
    claims = [{"name": "c", "resourceClaimName": f"claim-of-{name}"}] if resident.devices else []
    spec = {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": str(resident.cpu)}}}],
        "resourceClaims": claims,
        "priority": resident.priority,
        "nodeName": resident.node,
        **({"schedulingGroup": {"podGroupName": resident.group}} if resident.group else {}),
    }
    status = {} if resident.started is None else {"startTime": f"2025-12-31T00:00:{resident.started:02}Z"}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": resident.app}}
    return convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


@pytest.mark.parametrize("start", range(0, SEEDS, 50))
def test_plans_are_sufficient_and_cheapest(start: int) -> None:
    for seed in range(start, min(start + 50, SEEDS)):
        check_plan(seed)


def check_plan(seed: int) -> str:
    """What the case was about."""
    world = random_preemption(seed)
    try:
        if world.fits_without(()):
            return "fits"
        least = world.cheapest()
    except TooLarge:
        return "too large"
    state = state_of(world)
    policy = {} if world.may_preempt else {"preemption_policy": "Never"}
    pods = tuple(replace(pod, spec=replace(pod.spec, priority=HIGH, **policy)) for pod in pods_of(world.gang))
    cycle = GangCycle(state, Cycle(state, GATES), GATES, ShareIds())
    request = GangRequest(pods, world.gang.needed, topology_key=ZONE if world.gang.topology else None)
    plan = plan_for_gang(state, cycle, VictimCandidates(state), request, NOW)
    if least is None:
        assert plan is None, f"seed {seed}: {plan}"
        return "hopeless"
    assert plan is not None, f"seed {seed}: {least}"
    names = [victim.pod.metadata.name for victim in plan.victims]
    assert world.fits_without(names), f"seed {seed}: {names} is not enough"
    assert len(plan.places) >= world.gang.needed, f"seed {seed}"
    assert world.cost(names) == least, f"seed {seed}: {names} cost {world.cost(names)}, not {least}"
    return f"{len(names)} victims"
