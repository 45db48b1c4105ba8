"""Upgrade paths of the gates for groups of pods, over HTTP: off and on again with stored objects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dralloc.client.async_client import AsyncClient
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import read_kubeconfig
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.rbac_v1 import ClusterRole
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.errors import NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.settings import NAME
from dralloc.server.server_process import ServerSettings, run_server
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.running_cluster import RunningCluster, in_running_cluster_with
from tests.support.running_groups import GROUPS, OWN, SHARED, create_node, member, shared_claim
from tests.support.scheduled_cluster import node
from tests.support.workloads import claim_template, existing, pod, pod_group, template

pytestmark = pytest.mark.slow


@in_running_cluster_with(GROUPS)
async def test_KEP_5729_upgrade_gates_off_and_on_again_keep_groups_and_reservations(cluster: RunningCluster) -> None:
    await create_node(cluster)
    await cluster.create(pod_group("g", SHARED), member("p0"))
    await cluster.running("p0")
    made = await shared_claim(cluster)
    # Everything without the gates: the running pod, its claim and the reservation stay.
    await cluster.restart_all()
    await cluster.create(pod("plain", {"own": template("t")}, scheduler=NAME))
    await cluster.running("plain")
    assert (await cluster.claim(made.metadata.name)).status.reserved_for == made.status.reserved_for
    assert (await cluster.pod("p0")).status.phase == "Running"
    # And with them again: members join, and the group is released at its end.
    await cluster.restart_all(GROUPS)
    await cluster.create(member("p1"))
    await cluster.running("p1")
    assert (await cluster.claim(made.metadata.name)).status.reserved_for == made.status.reserved_for
    for name in ("p0", "p1"):
        await cluster.remove_pod(name)
    await cluster.client.delete(PodGroup, "g")
    await cluster.until_gone(made.metadata.name, ResourceClaim)


@in_running_cluster_with(GROUPS)
async def test_KEP_5729_upgrade_fields_of_gates_that_are_off_are_dropped(cluster: RunningCluster) -> None:
    await create_node(cluster)
    # Claims of groups off: the group has none, and the pod gets one of its own.
    await cluster.restart_all("GenericWorkload=true")
    await cluster.create(pod_group("g", SHARED), member("p0"))
    assert (await cluster.client.get(PodGroup, "g")).spec.resource_claims == ()
    await cluster.running("p0")
    assert (await cluster.claim_of("p0", "shared")).metadata.owner_references[0].kind == "Pod"
    # Groups off: the kind is not served, and a pod does not name its group.
    await cluster.restart_all()
    with pytest.raises(NotFound):
        await cluster.client.get(PodGroup, "g")
    await cluster.create(member("p1"))
    assert (await cluster.running("p1")).spec.scheduling_group is None
    # On again: the stored group is there, and a pod that was created meanwhile is not in it.
    await cluster.restart_all(GROUPS)
    assert (await cluster.client.get(PodGroup, "g")).spec.resource_claims == ()
    assert (await cluster.pod("p1")).spec.scheduling_group is None


@in_running_cluster_with(GROUPS)
async def test_KEP_5729_upgrade_members_are_scheduled_one_by_one_without_the_gate(cluster: RunningCluster) -> None:
    """Pods that name a group are ordinary ones then, and their claims are not made."""
    for name in ("scheduler", "controllers"):
        await cluster.components.end(name)
    await create_node(cluster)
    await cluster.create(claim("c", request()), pod_group("g", {"direct": existing("c")}, min_count=3))
    await cluster.create(member("waits", SHARED), member("bare", {}), member("direct", {"direct": existing("c")}))
    await cluster.restart_all()
    await cluster.running("bare")
    await cluster.running("direct")
    assert (await cluster.claim("c")).status.reserved_for == (pod_reference(await cluster.pod("direct")),)
    said = [each.message for each in await cluster.events_of("waits") if each.reason == "FailedResourceClaimCreation"]
    assert any("GenericWorkload is disabled" in each for each in said)
    assert len(await cluster.claims()) == 1


@in_running_cluster_with(GROUPS)
async def test_KEP_5729_upgrade_a_scheduler_without_the_gate_reserves_for_pods(cluster: RunningCluster) -> None:
    """The entry of the group stays, and members that come meanwhile have entries of their own."""
    await create_node(cluster)
    await cluster.create(claim("c", request()), pod_group("g", {"shared": existing("c")}))
    await cluster.create(member("p0", {"shared": existing("c")}))
    await cluster.running("p0")
    before = (await cluster.claim("c")).status.reserved_for
    await cluster.schedule("GenericWorkload=true")
    await cluster.create(member("p1", {"shared": existing("c")}))
    await cluster.running("p1")
    own = pod_reference(await cluster.pod("p1"))
    assert (await cluster.claim("c")).status.reserved_for == (*before, own)
    await cluster.schedule(GROUPS)
    await cluster.create(member("p2", {"shared": existing("c")}))
    await cluster.running("p2")
    assert (await cluster.claim("c")).status.reserved_for == (*before, own)


TOPOLOGY = f"{GROUPS},TopologyAwareWorkloadScheduling=true,PodGroupPreemptionPolicy=true"


@in_running_cluster_with(TOPOLOGY)
async def test_KEP_5729_upgrade_topology_and_policy_are_kept_while_their_gates_are_off(
    cluster: RunningCluster,
) -> None:
    await cluster.create(device_class(), claim_template("t", request()))
    for name in ("node-a", "node-b"):
        gpu = resource_slice(name, device("gpu-0"), pool=name, node_name=name)
        await cluster.create(node(name, labels={"zone": name}), gpu)
    constraints: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "zone"}]}}
    await cluster.create(pod_group("g", min_count=2, **constraints), *(member(f"p{n}", OWN) for n in range(2)))
    await cluster.refused("p0", "minCount (2) cannot be satisfied")
    metrics = cluster.scheduler_metrics.text()
    assert 'scheduler_placement_evaluations_total{result="infeasible",profile="dralloc"}' in metrics
    await cluster.restart_all(GROUPS)
    for n in range(2):
        await cluster.running(f"p{n}")
    stored = await cluster.client.patch(PodGroup, "g", {"metadata": {"labels": {"a": "b"}}})
    assert (stored.topology_key, stored.spec.preemption_policy) == ("zone", "PreemptLowerPriority")
    await cluster.create(pod_group("later", preemptionPolicy="Never", **constraints))
    later = await cluster.client.get(PodGroup, "later")
    assert (later.spec.scheduling_constraints, later.spec.preemption_policy) == (None, None)
    await cluster.restart_all(TOPOLOGY)
    changed = await cluster.client.patch(PodGroup, "later", {"metadata": {"labels": {"a": "b"}}})
    assert changed.spec.scheduling_constraints is None


def test_G24_default_roles_know_groups_while_their_gate_is_on(tmp_path: Path) -> None:
    async def verbs(gates: str, *asked: tuple[str, str]) -> list[set[str]]:
        """What the roles allow with the resources, on a server with these gates."""
        settings = ServerSettings(
            data_dir=tmp_path / (gates or "none"), port=0, store="memory://", gates=FeatureGates.parse(gates)
        )
        async with run_server(settings):
            transport = HttpTransport(read_kubeconfig(settings.kubeconfig_path))
            client = AsyncClient(transport)
            roles = {role: (await client.get(ClusterRole, role)).rules for role, _ in asked}
            await transport.close()
        return [
            {verb for rule in roles[role] if resource in rule.resources for verb in rule.verbs}
            for role, resource in asked
        ]

    scheduler = "system:kube-scheduler"
    view, edit, status, workloads = asyncio.run(
        verbs(
            GROUPS,
            ("view", "podgroups/status"),
            ("edit", "workloads"),
            (scheduler, "podgroups/status"),
            (scheduler, "workloads"),
        )
    )
    assert view == {"get", "list", "watch"}
    assert edit >= {"create", "delete", "patch", "update"}
    assert (status, workloads) == ({"patch", "update"}, set())
    assert asyncio.run(verbs("", ("view", "podgroups"))) == [set()]
