"""When requests for the status of pools are deleted, against a real server in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dralloc.kube.resource_v1alpha3 import ResourcePoolStatusRequest
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import DRIVER, device, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster

HOUR_S = 3600.0


def play(scenario: Callable[[ControlledCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        gates = FeatureGates.parse("DRAResourcePoolStatus=true")
        async with controlled_cluster(only=("pool-status",), gates=gates) as cluster:
            await scenario(cluster)

    run_virtual(main())


def asked(name: str) -> dict[str, Any]:
    kind = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest"}
    return {**kind, "metadata": {"name": name}, "spec": {"driver": DRIVER}}


async def names(cluster: ControlledCluster) -> set[str]:
    return {each.metadata.name for each in await cluster.client.list(ResourcePoolStatusRequest)}


def test_an_answered_request_is_deleted_an_hour_later() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(resource_slice("gpus", device("gpu-0")), asked("first"))
        await cluster.settle(HOUR_S / 2)
        await cluster.create(asked("second"))
        await cluster.settle(HOUR_S / 2 - 60)
        assert await names(cluster) == {"first", "second"}
        await cluster.settle(120)
        assert await names(cluster) == {"second"}
        assert f'resourcepoolstatusrequest_controller_requests_processed_total{{driver_name="{DRIVER}"}} 2' in (
            cluster.metrics
        )

    play(scenario)


def test_a_request_that_nobody_answered_is_deleted_after_a_day() -> None:
    """Without the controller nothing expires; a request of the last day is answered when it is back."""

    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.kill()
        await cluster.create(asked("old"))
        await cluster.settle(23 * HOUR_S)
        await cluster.create(asked("new"))
        await cluster.settle(2 * HOUR_S)
        assert await names(cluster) == {"old", "new"}
        cluster.start()
        await cluster.settle(60)
        (left,) = await cluster.client.list(ResourcePoolStatusRequest)
        assert left.metadata.name == "new"
        assert left.status is not None

    play(scenario)
