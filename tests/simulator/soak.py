"""A soak test: random steps of users, operators and faults. Checkers look at every revision, every request and every watch."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, NamedTuple

from dralloc.client.typed_resource import key_of
from dralloc.testing.virtual_time import Livelock, run_virtual
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.idle_checks import SOON_S, lasting, leaks
from tests.simulator.liveness import stuck_pods
from tests.simulator.network import Faults
from tests.simulator.random_workload import RandomWorkload

HARSH: Final = Faults(lose_request=0.01, lose_answer=0.015, break_stream=0.005, slow=0.01, late=0.005, duplicate=0.002)
STORES: Final = ("memory", "sqlite", "etcd")
STEP_MAX_S: Final = 1.0
# Longer than every backoff, timeout and flush of unschedulable pods, and than pods without a node keep a claim of a gone workload.
REST_S: Final = 1800.0
DELETIONS: Final = 10
# Steps between two collections of garbage, and between two complete ones.
COLLECT_EVERY: Final = 10
COLLECT_ALL_EVERY: Final = 1000
EVENTS_SHOWN: Final = 30


class SoakFailed(AssertionError):
    """An invariant was violated; the message has the seed and the latest events."""


class SoakResult(NamedTuple):
    """The number of revisions that were checked, and what two runs of one seed have in common."""

    revisions: int
    digest: str


async def soak(
    seed: int,
    *,
    steps: int,
    store: str = "",
    faults: Faults = HARSH,
    schedulers: int = 2,
    elected: bool = False,
    with_gangs: bool = True,
) -> SoakResult:
    """Simulate the steps; raises SoakFailed.

    A step is one action: a request of a user, a driver or an operator, or a fault. Without `store`, the seed chooses it.
    """
    random = Random(seed)
    store = store or STORES[seed % len(STORES)]
    record = _Record(seed, store)
    with record.capturing_errors(), _collecting_in_steps():
        async with SimulatedCluster.started(
            random, Faults(), store=store, schedulers=schedulers, elected=elected
        ) as cluster:
            workload = RandomWorkload(cluster, random, with_gangs=with_gangs)
            await workload.prepare()
            cluster.network.faults = faults
            loop = asyncio.get_running_loop()
            for step in range(steps):
                _collect(step)
                record.add(f"{loop.time():9.1f} s  {await workload.act()}")
                passed_s = loop.time()
                await asyncio.sleep(random.uniform(0, STEP_MAX_S))
                cluster.time_passed(loop.time() - passed_s)
                cluster.check()
                record.check(cluster.violations())
            await _check_idle_cluster(cluster, record)
            await _check_freed_room(cluster, workload, record)
            await _check_empty_cluster(cluster, workload, record)
            return SoakResult(cluster.history.changes, cluster.digest())


def run_seed(seed: int, *, steps: int, store: str, elected: bool) -> tuple[str, bool]:
    """What to print about a seed, and whether all was right."""
    try:
        result = run_virtual(soak(seed, steps=steps, store=store, elected=elected))
    except SoakFailed as failure:
        return f"{failure}\n", False
    except Livelock as failure:
        return f"seed {seed}:\n  {failure}\n", False
    return f"seed {seed}: {steps} steps, {result.revisions} revisions ({result.digest}), no violation\n", True


@contextmanager
def _collecting_in_steps() -> Iterator[None]:
    """Collect no garbage except between steps: objects that wait for it, such as generators, end when the seed decides."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _collect(step: int) -> None:
    if step % COLLECT_EVERY == 0:
        gc.collect(2 if step % COLLECT_ALL_EVERY == 0 else 1)


class _Record:
    """The latest events, and logged errors: each of those is a bug, too."""

    def __init__(self, seed: int, store: str) -> None:
        self._seed = seed
        self._store = store
        self._lines: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._logged_errors: list[str] = []

    def add(self, line: str) -> None:
        self._lines.append(line)

    def check(self, found: Iterable[str]) -> None:
        wrong = [*found, *self._logged_errors]
        if wrong:
            what = "\n  ".join(wrong)
            raise SoakFailed(f"seed {self._seed}, {self._store}:\n  {what}\n" + "\n".join(self._lines))

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
    """Without faults and new work, with all features: no pod is stuck, nothing leaks and all watches are up to date.

    Components go on as they are, so that one that has missed something is found out.
    """
    await cluster.heal()
    await asyncio.sleep(REST_S)
    due = [observer.due() for observer in cluster.observers]
    # Leases change all the time.
    await asyncio.sleep(SOON_S)
    cluster.check()
    cluster.registers.check()
    missed = [told for observer, count in zip(cluster.observers, due, strict=True) if (told := observer.missed(count))]
    record.check((*cluster.violations(), *missed, *await lasting(lambda: _unfinished(cluster))))


def _unfinished(cluster: SimulatedCluster) -> Iterator[str]:
    """What components still have to do."""
    objects = cluster.objects()
    yield from leaks(objects)
    yield from stuck_pods(objects, cluster.clock.now())
    claims = {key_of(claim): claim for claim in objects.claims}
    for machine in cluster.machines:
        yield from machine.unready(objects.pods, claims)
    yield from cluster.gangs.torn()


async def _check_freed_room(cluster: SimulatedCluster, workload: RandomWorkload, record: _Record) -> None:
    """Delete pods one by one: pods that fit now are scheduled soon, not only when unschedulable pods are flushed."""
    for _ in range(DELETIONS):
        record.add(await workload.delete_pod())
        await asyncio.sleep(SOON_S)
        record.check(await lasting(lambda: stuck_pods(cluster.objects(), cluster.clock.now())))


async def _check_empty_cluster(cluster: SimulatedCluster, workload: RandomWorkload, record: _Record) -> None:
    """After users have deleted everything, no claim is allocated and nothing leaks."""
    await workload.end_all()
    await asyncio.sleep(REST_S)
    await workload.end_trainings()
    await asyncio.sleep(REST_S)
    cluster.check()
    objects = cluster.objects()
    held = (f"claim {claim.metadata.name} is still allocated" for claim in objects.claims if claim.status.allocation)
    gone = [f"pod {pod.metadata.name} still exists" for pod in objects.pods]
    gone += [f"PodGroup {group.metadata.name} still exists" for group in objects.groups]
    prepared = (left for machine in cluster.machines for left in machine.left())
    record.check((*cluster.violations(), *held, *gone, *prepared, *leaks(objects)))
