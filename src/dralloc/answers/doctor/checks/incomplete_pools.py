"""Pools whose newest generation has another number of slices than it announces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.answers.doctor.check import Finding, HealthCheck, Observation, delete
from dralloc.answers.doctor.cluster_facts import ClusterFacts, write_of, written_at
from dralloc.devices.identity import PoolId
from dralloc.devices.published_slice import generation_of, is_complete, newest_slices
from dralloc.kube.diagnostics import Severity
from dralloc.kube.resource_v1 import ResourceSlice


def _look(facts: ClusterFacts) -> Iterator[Observation]:
    slices = facts.objects.all(ResourceSlice).values()
    all_of: dict[PoolId, list[str]] = {}
    for each in slices:
        all_of.setdefault(PoolId.of_slice(each), []).append(each.metadata.name)
    for pool_id, newest in sorted(newest_slices(slices).items()):
        times = [written_at(each.metadata) for each in newest]
        last = max((time for time in times if time is not None), default=None)
        if not is_complete(newest) and facts.is_lasting(last):
            yield _finding(facts, pool_id, newest, all_of[pool_id])


def _finding(facts: ClusterFacts, pool_id: PoolId, newest: list[ResourceSlice], names: list[str]) -> Finding:
    announced = sorted({each.spec.pool.resource_slice_count for each in newest})
    older = len(names) - len(newest)
    evidence = [
        f"generation {generation_of(newest[0])} announces {' or '.join(map(str, announced))} slices and has {len(newest)}",
        *(f"resourceslice {each.metadata.name}: {write_of(facts, each.metadata)}" for each in newest[:5]),
    ]
    if len(newest) > 5:
        evidence.append(f"{len(newest) - 5} more slices")
    if older:
        evidence.append(f"{older} slices of older generations do not count")
    node = newest[0].spec.node_name
    return Finding(
        subject=f"pool {pool_id.pool} of driver {pool_id.driver}",
        severity=Severity.ERROR,
        message=f"incomplete: {len(newest)} of {announced[-1]} slices" + (f", on node {node}" if node else ""),
        evidence=tuple(evidence),
        advice="See whether the driver runs, and what it logs. If it does, it publishes the whole pool again after this command; if "
        "it does not, the pool is gone until it does.",
        commands=(delete("resourceslice", sorted(names)),),
    )


INCOMPLETE_POOLS: Final = HealthCheck(
    id="incomplete-pool",
    title="pools that stay incomplete",
    why="Nothing is allocated from a pool that is incomplete, so its devices are out of use.",
    look=_look,
    needs=(ResourceSlice,),
)
