"""The quota controller keeps statuses up to date, with few writes."""

from __future__ import annotations

from dralloc.kube.core_v1 import ResourceQuota
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.testing.builders import alternative, claim, device_class, first_available, request
from dralloc.testing.virtual_time import run_virtual
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.workloads import pod, quota

CLAIMS = "count/resourceclaims.resource.k8s.io"
GPUS = "gpu.deviceclass.resource.k8s.io/devices"
TPUS = "tpu.deviceclass.resource.k8s.io/devices"
EXTENDED = "requests.example.com/gpu"


def test_the_status_follows_the_usage() -> None:
    async def main() -> None:
        async with controlled_cluster(only=("quota",)) as cluster:
            hard = {CLAIMS: "10", GPUS: "20", TPUS: "40", EXTENDED: "20", "count/pods": "5", "limits.cpu": "3"}
            await cluster.client.create(quota("q", hard))
            await cluster.settle()
            assert await used(cluster) == {CLAIMS: 0, GPUS: 0, TPUS: 0, EXTENDED: 0, "count/pods": 0}

            await cluster.client.create(claim("exact", request(count=3)))
            listed = first_available(
                "r", alternative("a", count=2), alternative("b"), alternative("c", device_class="tpu", everything=True)
            )
            await cluster.client.create(claim("listed", listed))
            await cluster.client.create(pod("p"))
            await cluster.settle()
            assert await used(cluster) == {CLAIMS: 2, GPUS: 5, TPUS: 32, EXTENDED: 0, "count/pods": 1}

            await cluster.client.create(
                DeviceClass(
                    metadata=device_class().metadata,
                    spec=type(device_class().spec)(extended_resource_name="example.com/gpu"),
                )
            )
            await cluster.client.delete(ResourceClaim, "listed")
            await cluster.settle()
            assert await used(cluster) == {CLAIMS: 1, GPUS: 3, TPUS: 0, EXTENDED: 3, "count/pods": 1}
            shown = (await cluster.client.get(ResourceQuota, "q")).status.hard
            assert set(shown) == set(hard) - {"limits.cpu"}

    run_virtual(main())


async def used(cluster: ControlledCluster) -> dict[str, int]:
    status = (await cluster.client.get(ResourceQuota, "q")).status
    return {name: int(str(amount)) for name, amount in status.used.items()}


def test_many_claims_cause_few_writes() -> None:
    async def main() -> None:
        async with controlled_cluster(only=("quota",)) as cluster:
            await cluster.client.create(quota("q", {CLAIMS: "1000"}))
            await cluster.settle()
            before = int((await cluster.client.get(ResourceQuota, "q")).metadata.resource_version)
            for number in range(100):
                await cluster.client.create(claim(f"c{number}", request()))
                await cluster.settle(0.01)
            await cluster.settle()
            assert await used(cluster) == {CLAIMS: 100}
            after = int((await cluster.client.get(ResourceQuota, "q")).metadata.resource_version)
            # Every write is one revision: each creation, what it charges, and what the controller writes.
            assert after - before - 2 * 100 <= 3

    run_virtual(main())
