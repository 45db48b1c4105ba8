"""Hours of a cluster's life in seconds: random acts, faults and restarts, with the checkers looking on after every step."""

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
from dralloc.simulator.liveness import forgotten
from dralloc.simulator.network_faults import Faults
from dralloc.simulator.random_workload import RandomWorkload

CALM: Final = Faults()
HARSH: Final = Faults(lose_request=0.02, lose_answer=0.02, break_stream=0.01, slow=0.02, late=0.005)
STEP_MAX_S: Final = 60.0
# Long enough for every back-off, every parked pod and every time-out to have had its turn.
REST_S: Final = 1200.0
# Longer than any back-off, and far shorter than pods are parked at most.
SOON_S: Final = 30.0
DELETIONS: Final = 10
EVENTS_SHOWN: Final = 30


class SoakFailed(AssertionError):
    """An invariant did not hold; the message has the seed and what happened last."""


async def soak(seed: int, *, hours: float, faults: Faults = HARSH, schedulers: int = 2, elected: bool = False) -> int:
    """Live through the hours; returns the number of acts. Raises `SoakFailed`."""
    random = Random(seed)
    story = _Story(seed)
    with story.listening():
        async with SimulatedCluster.started(random, faults, schedulers=schedulers, elected=elected) as cluster:
            workload = RandomWorkload(cluster, random)
            await workload.prepare()
            loop = asyncio.get_running_loop()
            acts = 0
            while loop.time() < hours * 3600:
                story.tell(f"{loop.time():9.1f} s  {await workload.act()}")
                acts += 1
                await asyncio.sleep(random.uniform(0, STEP_MAX_S))
                cluster.check()
                story.judge(violations(await cluster.objects()))
            await _come_to_rest(cluster, story)
            await _make_room(cluster, workload, story)
            await _give_everything_back(cluster, workload, story)
    return acts


class _Story:
    """What happened last, and what was complained about: an error in a log is a bug as well."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lines: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._complaints: list[str] = []

    def tell(self, line: str) -> None:
        self._lines.append(line)

    def judge(self, found: Iterable[str]) -> None:
        wrong = [*found, *self._complaints]
        if wrong:
            raise SoakFailed(f"seed {self._seed}: " + "; ".join(wrong) + "\n" + "\n".join(self._lines))

    @contextmanager
    def listening(self) -> Iterator[None]:
        ears = _Ears(self._complaints)
        logging.getLogger().addHandler(ears)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(ears)


class _Ears(logging.Handler):
    def __init__(self, complaints: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._complaints = complaints

    def emit(self, record: logging.LogRecord) -> None:
        self._complaints.append(f"logged by {record.name}: {self.format(record)}")


async def _come_to_rest(cluster: SimulatedCluster, story: _Story) -> None:
    """Everything works and has all its features, nobody meddles, and nothing happens any more: nothing is left undone."""
    await cluster.heal()
    await cluster.restart_server(FeatureGates.defaults())
    for name in cluster.component_names:
        await cluster.kill(name)
        if name != "conflict-injector":
            cluster.start(name, FeatureGates.defaults())
    await asyncio.sleep(REST_S)
    cluster.check()
    objects = await cluster.objects()
    story.judge((*violations(objects), *leaks(objects), *forgotten(objects, cluster.clock.now())))


async def _make_room(cluster: SimulatedCluster, workload: RandomWorkload, story: _Story) -> None:
    """Pods go one by one; whoever waited for just that gets it, long before it would be tried in any case."""
    for _ in range(DELETIONS):
        story.tell(await workload.delete_pod())
        await asyncio.sleep(SOON_S)
        waiting = set(forgotten(await cluster.objects(), cluster.clock.now()))
        if waiting:
            # Something may have happened just now; whoever is forgotten stays so.
            await asyncio.sleep(SOON_S)
            story.judge(waiting.intersection(forgotten(await cluster.objects(), cluster.clock.now())))


async def _give_everything_back(cluster: SimulatedCluster, workload: RandomWorkload, story: _Story) -> None:
    """When users want nothing any more nobody holds a device, and what can go goes."""
    await workload.end_all()
    await asyncio.sleep(REST_S)
    await workload.give_up_trainings()
    await asyncio.sleep(REST_S)
    cluster.check()
    objects = await cluster.objects()
    held = (f"claim {claim.metadata.name} still holds devices" for claim in objects.claims if claim.status.allocation)
    story.judge((*held, *(f"pod {pod.metadata.name} is still there" for pod in objects.pods), *leaks(objects)))
