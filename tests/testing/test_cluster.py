"""A whole cluster in this process: pods get devices and run, in real and in virtual time, on any store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from dralloc.client.transport import ClientRequest
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.node.simulated.profiles import BadProfile
from dralloc.primitives.features import FeatureGates
from dralloc.server.store.store_url import open_store
from dralloc.system_clock import SystemClock
from dralloc.testing.builders import request, taint, taint_rule
from dralloc.testing.cluster import ClusterSettings, InProcessCluster, cluster_in_process, fleet
from dralloc.testing.components import ComponentDied
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.workloads import claim_template, job, pod, template

TEMPLATE = claim_template("some-memory", request("gpu", device_class="gpu.example.com", capacity={"memory": "20Gi"}))


async def run_a_pod(cluster: InProcessCluster, name: str = "p") -> Pod:
    """Runs a pod without a scheduler name, with a claim from a template."""
    await cluster.client.create(pod(name, {"gpu": template("some-memory")}))

    async def running() -> Pod:
        async for event in cluster.client.watch(Pod, fields=f"metadata.name={name}"):
            if event.object.status.phase == "Running":
                return event.object
        raise AssertionError("a watch has no end")

    return await cluster.components.guard(running())


def in_real_time(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


@pytest.mark.parametrize("run", [in_real_time, run_virtual])
def test_a_pod_gets_its_share_and_runs(run: Any) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop()) if run is run_virtual else SystemClock()
        settings = ClusterSettings(fleets=(fleet("gpu", 2), fleet("nic", 1)), clock=clock)
        async with cluster_in_process(settings) as cluster:
            nodes = await cluster.client.list(Node)
            assert sorted(node.metadata.name for node in nodes) == ["gpu-0", "gpu-1", "nic-0"]
            await cluster.client.create(TEMPLATE)
            running = await run_a_pod(cluster)
            (claim,) = await cluster.client.list(ResourceClaim)
            assert claim.status.allocation is not None
            (result,) = claim.status.allocation.devices.results
            text = (await cluster.transport.send(ClientRequest(method="GET", path="/metrics"))).body.decode()
            assert 'apiserver_request_total{verb="POST"' in text
            assert 'scheduler_schedule_attempts_total{result="scheduled",profile="default-scheduler"} 1\n' in text
            assert 'dynamic_resource_allocation_resourceclaim_creates_total{status="success"' in text
            families = re.findall("^# TYPE (\\S+)", text, re.MULTILINE)
            assert len(families) == len(set(families)), "no two components have a metric of the same name"
            assert (result.pool, str(result.consumed_capacity["memory"])) == (running.spec.node_name, "20Gi")

    run(main())


def test_a_cluster_that_comes_back_takes_over_what_is_stored(tmp_path: Path) -> None:
    settings = ClusterSettings(fleets=(fleet("gpu", 2),))

    async def first() -> list[str]:
        async with (
            await open_store(str(tmp_path / "state.db")) as store,
            cluster_in_process(settings, store=store) as cluster,
        ):
            await cluster.client.create(TEMPLATE)
            await run_a_pod(cluster)
            return await uids(cluster)

    async def second() -> list[str]:
        async with (
            await open_store(str(tmp_path / "state.db")) as store,
            cluster_in_process(settings, store=store) as cluster,
        ):
            assert (await cluster.client.get(Pod, "p")).status.phase == "Running"
            after = await uids(cluster)
            await run_a_pod(cluster, "another")
            return after

    async def uids(cluster: InProcessCluster) -> list[str]:
        items = (*await cluster.client.list(Node), *await cluster.client.list(ResourceSlice))
        return sorted(item.metadata.uid for item in items)

    assert asyncio.run(first()) == asyncio.run(second())


def test_every_component_has_the_features_of_the_cluster() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        settings = ClusterSettings(
            gates=FeatureGates.parse("DRAConsumableCapacity=false"), clock=clock, fleets=(fleet("gpu", 1),)
        )
        async with cluster_in_process(settings) as cluster:
            (published,) = await cluster.client.list(ResourceSlice)
            assert not any(device.allow_multiple_allocations for device in published.spec.devices or ())

    run_virtual(main())


@pytest.mark.slow
@pytest.mark.parametrize("is_evicted", [True, False], ids=["evicted", "suspended"])
def test_a_job_whose_pod_is_stopped_is_not_done(is_evicted: bool) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with cluster_in_process(ClusterSettings(clock=clock, fleets=(fleet("gpu", 1),))) as cluster:
            await cluster.client.create(TEMPLATE)
            await cluster.client.create(job("j", {"gpu": template("some-memory")}))
            await asyncio.sleep(5)
            (first,) = await cluster.client.list(Pod)
            if is_evicted:
                (claim,) = await cluster.client.list(ResourceClaim)
                assert claim.status.allocation is not None
                (used,) = claim.status.allocation.devices.results
                broken = taint("broken", effect="NoExecute")
                await cluster.client.create(taint_rule("r", broken, pool=used.pool, device=used.device))
            else:
                await cluster.client.patch(Job, "j", {"spec": {"suspend": True}})
            await asyncio.sleep(60)
            after = await cluster.client.get(Job, "j")
            counts = (after.status.succeeded, after.status.failed)
            assert (counts, [each.type for each in after.status.conditions]) == (
                ((0, 1), []) if is_evicted else ((0, 0), ["Suspended"])
            )
            pods = await cluster.client.list(Pod)
            assert first.metadata.name not in [each.metadata.name for each in pods]
            assert [each.status.phase for each in pods] == (["Running"] if is_evicted else [])

    run_virtual(main())


def test_a_component_that_dies_ends_what_waits_for_it() -> None:
    async def main() -> None:
        async with cluster_in_process(ClusterSettings()) as cluster:
            cluster.components.start("meddler", fail)
            await cluster.components.guard(asyncio.Event().wait())

    async def fail() -> None:
        raise OSError("no space left on device")

    with pytest.raises(ComponentDied, match="the meddler died: OSError: no space left on device"):
        asyncio.run(main())


def test_a_missing_profile_is_an_error() -> None:
    with pytest.raises(BadProfile, match="no profile 'quantum'"):
        fleet("quantum", 1)
