"""The condition of a PodGroup: once it is true it stays true, unless a user takes it away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dralloc.kube.scheduling_v1beta1 import SCHEDULED, UNSCHEDULABLE, PodGroup
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.report.pod_group_conditions import PodGroupConditionWriter
from dralloc.testing.virtual_time import run_virtual
from tests.support.cluster import TestCluster, cluster_on
from tests.support.workloads import pod_group


class WatchedGroup:
    """A group as the scheduler's watch shows it, which may be behind."""

    def __init__(self, cluster: TestCluster) -> None:
        self._cluster = cluster
        self.shown: PodGroup
        self.writer = PodGroupConditionWriter(cluster.calls(), cluster.clock, lambda *_: self.shown)

    async def show(self) -> None:
        self.shown = await self.stored()

    async def stored(self) -> PodGroup:
        return await self._cluster.client.get(PodGroup, "g")

    async def report(self, reason: str) -> PodGroup:
        self.writer.report(self.shown, reason, f"because {reason}")
        await self._cluster.settle()
        return await self.stored()


@asynccontextmanager
async def watched_group() -> AsyncIterator[tuple[TestCluster, WatchedGroup]]:
    async with cluster_on(TestCluster, gates=FeatureGates.parse("GenericWorkload=true")) as cluster:
        await cluster.create(pod_group("g", min_count=2))
        group = WatchedGroup(cluster)
        await group.show()
        cluster.components.start("conditions", group.writer.run)
        await asyncio.sleep(0)
        yield cluster, group


def test_a_true_condition_that_the_watch_does_not_show_yet_stays_true() -> None:
    async def main() -> None:
        async with watched_group() as (_, group):
            assert (await group.report(SCHEDULED)).was_scheduled
            assert (await group.report(UNSCHEDULABLE)).was_scheduled

    run_virtual(main())


def test_a_condition_that_was_taken_away_is_written_again() -> None:
    async def main() -> None:
        async with watched_group() as (cluster, group):
            await group.report(SCHEDULED)
            await cluster.client.patch(PodGroup, "g", {"status": {"conditions": None}}, subresource="status")
            await group.show()
            assert not (await group.report(UNSCHEDULABLE)).was_scheduled
            assert (await group.report(SCHEDULED)).was_scheduled

    run_virtual(main())
