"""The configuration that a scheduler publishes for clients."""

from __future__ import annotations

from dralloc.api.core_v1 import ConfigMap
from dralloc.primitives.errors import NotFound
from dralloc.scheduler.configuration_publisher import ConfigurationPublisher
from dralloc.scheduler.decide.strategy_choice import SPREADING
from dralloc.scheduler.published_configuration import key_of
from dralloc.scheduler.settings import NAME, SchedulerSettings
from dralloc.testing.virtual_time import run_virtual
from tests.support.cluster import TestCluster, cluster_on


def test_a_configuration_that_a_restored_backup_does_not_have_is_published_again() -> None:
    key = key_of(NAME)

    async def is_published(cluster: TestCluster) -> bool:
        await cluster.settle()
        try:
            await cluster.client.get(ConfigMap, key.name, namespace=key.namespace)
        except NotFound:
            return False
        return True

    async def main() -> None:
        async with cluster_on(TestCluster) as cluster:
            publisher = ConfigurationPublisher(cluster.calls(), SchedulerSettings(), lambda: SPREADING)
            cluster.components.start("publisher", publisher.run)
            publisher.listed()
            assert not await is_published(cluster)
            publisher.check()
            assert await is_published(cluster)
            await cluster.client.delete(ConfigMap, key.name, namespace=key.namespace)
            publisher.check()
            assert not await is_published(cluster)
            publisher.listed()
            assert await is_published(cluster)

    run_virtual(main())
