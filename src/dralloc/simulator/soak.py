"""A soak test: simulated hours of random actions, faults and restarts, with all checkers after every step."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from dralloc.primitives.features import FeatureGates
from dralloc.simulator.checkers import leaks, violations
from dralloc.simulator.cluster import SimulatedCluster
from dralloc.simulator.liveness import stuck_pods
from dralloc.simulator.network_faults import Faults
from dralloc.simulator.random_workload import RandomWorkload

HARSH: Final = Faults(lose_request=0.02, lose_answer=0.02, break_stream=0.01, slow=0.02, late=0.005)
STEP_MAX_S: Final = 60.0
# Longer than every backoff, timeout and flush of unschedulable pods.
REST_S: Final = 1200.0
# Longer than every backoff, and much shorter than the flush of unschedulable pods.
SOON_S: Final = 30.0
DELETIONS: Final = 10
EVENTS_SHOWN: Final = 30


class SoakFailed(AssertionError):
    """An invariant was violated; the message has the seed and the latest events."""


async def soak(seed: int, *, hours: float, faults: Faults = HARSH, schedulers: int = 2, elected: bool = False) -> int:
    """Simulate the hours; returns the number of actions. Raises SoakFailed."""
    random = Random(seed)
    record = _Record(seed)
    with record.capturing_errors():
        async with SimulatedCluster.started(random, faults, schedulers=schedulers, elected=elected) as cluster:
            workload = RandomWorkload(cluster, random)
            await workload.prepare()
            loop = asyncio.get_running_loop()
            actions = 0
            while loop.time() < hours * 3600:
                record.add(f"{loop.time():9.1f} s  {await workload.act()}")
                actions += 1
                await asyncio.sleep(random.uniform(0, STEP_MAX_S))
                cluster.check()
                record.check(violations(await cluster.objects()))
            await _check_idle_cluster(cluster, record)
            await _check_freed_room(cluster, workload, record)
            await _check_empty_cluster(cluster, workload, record)
    return actions


class _Record:
    """The latest events, and logged errors: each of those is a bug, too."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lines: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._logged_errors: list[str] = []

    def add(self, line: str) -> None:
        self._lines.append(line)

    def check(self, found: Iterable[str]) -> None:
        wrong = [*found, *self._logged_errors]
        if wrong:
            raise SoakFailed(f"seed {self._seed}: " + "; ".join(wrong) + "\n" + "\n".join(self._lines))

    @contextmanager
    def capturing_errors(self) -> Iterator[None]:
        handler = _ErrorLog(self._logged_errors)
        logging.getLogger().addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(handler)


class _ErrorLog(logging.Handler):
    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._logged_errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        self._logged_errors.append(f"logged by {record.name}: {self.format(record)}")


async def _check_idle_cluster(cluster: SimulatedCluster, record: _Record) -> None:
    """Without faults and new work, with all features: no pod is stuck and nothing leaks."""
    await cluster.heal()
    await cluster.restart_server(FeatureGates.defaults())
    for name in cluster.component_names:
        await cluster.kill(name)
        if name != "conflict-injector":
            cluster.start(name, FeatureGates.defaults())
    await asyncio.sleep(REST_S)
    cluster.check()
    objects = await cluster.objects()
    record.check((*violations(objects), *leaks(objects), *stuck_pods(objects, cluster.clock.now())))


async def _check_freed_room(cluster: SimulatedCluster, workload: RandomWorkload, record: _Record) -> None:
    """Delete pods one by one: pods that fit now are scheduled soon, not only when unschedulable pods are flushed."""
    for _ in range(DELETIONS):
        record.add(await workload.delete_pod())
        await asyncio.sleep(SOON_S)
        waiting = set(stuck_pods(await cluster.objects(), cluster.clock.now()))
        if waiting:
            # A pod may be about to be scheduled; one that is stuck stays so.
            await asyncio.sleep(SOON_S)
            record.check(waiting.intersection(stuck_pods(await cluster.objects(), cluster.clock.now())))


async def _check_empty_cluster(cluster: SimulatedCluster, workload: RandomWorkload, record: _Record) -> None:
    """After users have deleted everything, no claim is allocated and nothing leaks."""
    await workload.end_all()
    await asyncio.sleep(REST_S)
    await workload.end_trainings()
    await asyncio.sleep(REST_S)
    cluster.check()
    objects = await cluster.objects()
    held = (f"claim {claim.metadata.name} is still allocated" for claim in objects.claims if claim.status.allocation)
    record.check((*held, *(f"pod {pod.metadata.name} still exists" for pod in objects.pods), *leaks(objects)))
