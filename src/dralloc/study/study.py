"""Many simulations at once, on all cores: traces × strategies × seeds. Finished runs are kept in a directory, if one is given.

A run is kept under a digest of everything that decides its result, so that a study that was interrupted goes on where it ended, and
a study with more seeds or strategies simulates only those.
"""

from __future__ import annotations

import gc
import gzip
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from multiprocessing import get_context, parent_process
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from threading import Thread
from typing import Any, Final, Protocol

import msgspec

from dralloc import __version__
from dralloc.atomic_files import write_atomically
from dralloc.study.cluster import Cluster
from dralloc.study.comparison import BadInput
from dralloc.study.run import Run
from dralloc.study.simulation import simulate
from dralloc.study.strategies import strategy_digest, strategy_of
from dralloc.study.trace import Trace

FIRST_SEED: Final = 42
_POLLED_EVERY_S: Final = 0.2


class TraceSource(Protocol):
    """A trace for every seed: one that was read is the same for all, a synthetic one is drawn."""

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...
    def for_seed(self, seed: int) -> Trace: ...


@dataclass(frozen=True)
class Study:
    """What is to be simulated: every trace with every strategy and seed. Strategies are named, see `strategies`."""

    traces: Sequence[TraceSource]
    cluster: Cluster
    strategies: Sequence[str]
    seeds: Sequence[int] = (FIRST_SEED,)
    load: float | None = None
    moves_max: int = 0
    directory: Path | None = None
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)

    @cached_property
    def tasks(self) -> tuple[_Task, ...]:
        """In the order of the results. Raises BadInput for unknown strategies and for two of one name."""
        names = [strategy_of(strategy).name for strategy in self.strategies]
        if len(set(names)) < len(names):
            raise BadInput(f"two strategies have the name {max(names, key=names.count)}")
        return tuple(
            _Task(number, strategy, seed)
            for number in range(len(self.traces))
            for strategy in self.strategies
            for seed in self.seeds
        )

    @property
    def pods(self) -> int:
        """About how many pods are to be decided in all, for a progress bar."""
        first = [trace.for_seed(self.seeds[0]) for trace in self.traces]
        load = self.load
        each = (len(trace.arrivals) if load is None else _scaled_length(trace, self.cluster, load) for trace in first)
        return sum(each) * len(self.strategies) * len(self.seeds)

    def path_of(self, task: _Task) -> Path | None:
        if self.directory is None:
            return None
        what = (
            __version__,
            self._trace_digests[task.trace],
            self._cluster_digest,
            strategy_digest(task.strategy),
            task.seed,
            self.load,
            self.moves_max,
        )
        return self.directory / f"run-{sha256(repr(what).encode()).hexdigest()[:24]}.json.gz"

    @cached_property
    def _trace_digests(self) -> list[str]:
        return [trace.digest for trace in self.traces]

    @cached_property
    def _cluster_digest(self) -> str:
        return self.cluster.digest


@dataclass(frozen=True, slots=True)
class _Task:
    trace: int
    strategy: str
    seed: int


def run_study(study: Study, report: Callable[[int], None] | None = None) -> list[Run]:
    """The runs, in the order of the study's tasks; kept ones are read. `report` gets numbers of decided pods. Raises BadInput."""
    found: dict[_Task, Run] = {}
    for task in study.tasks:
        if (kept := _read(study, task)) is not None:
            found[task] = kept
            if report is not None:
                report(len(kept.pods["name"]))
    missing = [task for task in study.tasks if task not in found]
    if study.directory is not None and missing:
        study.directory.mkdir(parents=True, exist_ok=True)
    if study.workers == 1 or len(missing) == 1:
        for task in missing:
            found[task] = _simulate(study, task, report)
    elif missing:
        found |= _simulate_in_processes(study, missing, report)
    return [found[task] for task in study.tasks]


def kept_runs(study: Study) -> int:
    """How many runs of the study are finished already."""
    return sum((path := study.path_of(task)) is not None and path.exists() for task in study.tasks)


def _simulate(study: Study, task: _Task, report: Callable[[int], None] | None) -> Run:
    trace = study.traces[task.trace].for_seed(task.seed)
    run = simulate(
        trace, study.cluster, task.strategy, seed=task.seed, load=study.load, moves_max=study.moves_max, report=report
    )
    _write(study.path_of(task), run)
    return run


def _scaled_length(trace: Trace, cluster: Cluster, load: float) -> int:
    """About how many pods a scaled trace has."""
    from dralloc.study.device_meter import DeviceMeter
    from dralloc.study.pod_factory import PodFactory

    factory = PodFactory(trace, cluster)
    capacity = DeviceMeter(cluster.state(trace, 0).snapshot, cluster.measured_driver).capacity_milli
    requested = sum(factory.make(each).requested_milli for each in trace.arrivals)
    return round(len(trace.arrivals) * load * capacity / requested) if requested else len(trace.arrivals)


# --- Files --------------------------------------------------------------------------------------------------------


def _read(study: Study, task: _Task) -> Run | None:
    """A kept run, under the present names. A damaged file counts as none: the run is simulated again."""
    path = study.path_of(task)
    if path is None:
        return None
    names = {"trace": study.traces[task.trace].name, "cluster": study.cluster.name}
    try:
        values = msgspec.json.decode(gzip.decompress(path.read_bytes()))
        return Run.of_values({**values, "setting": {**values["setting"], **names}})
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path | None, run: Run) -> None:
    """Writes the file at once or not at all, so that an interrupted study keeps no half runs."""
    if path is None:
        return
    write_atomically(path, gzip.compress(msgspec.json.encode(run.to_values()), compresslevel=6, mtime=0), mode=0o644)


# --- Processes ----------------------------------------------------------------------------------------------------

# Set in each worker: the study, and the number of pods that all workers have decided.
_worker: dict[str, Any] = {}


def _begin(study: Study, decided: Synchronized[int], gc_threshold: tuple[int, int, int]) -> None:
    gc.set_threshold(*gc_threshold)
    _worker.update(study=study, decided=decided)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose study was killed would wait for ever."""
    parent = parent_process()
    assert parent is not None, "workers are started by a study"
    parent.join()
    os._exit(1)


def _count(pods: int) -> None:
    decided: Synchronized[int] = _worker["decided"]
    with decided.get_lock():
        decided.value += pods


def _work(task: _Task) -> Run:
    return _simulate(_worker["study"], task, _count)


def _simulate_in_processes(
    study: Study, tasks: Iterable[_Task], report: Callable[[int], None] | None
) -> dict[_Task, Run]:
    context = get_context("spawn")
    decided: Synchronized[int] = context.Value("q", 0)
    pool = ProcessPoolExecutor(
        study.workers, mp_context=context, initializer=_begin, initargs=(study, decided, gc.get_threshold())
    )
    try:
        futures: dict[Future[Run], _Task] = {pool.submit(_work, task): task for task in tasks}
        waiting, told = set(futures), 0
        while waiting:
            done, waiting = wait(waiting, _POLLED_EVERY_S, FIRST_COMPLETED)
            for future in done:
                # A failed run ends the study at once.
                future.result()
            if report is not None and decided.value > told:
                report(decided.value - told)
                told = decided.value
        return {task: future.result() for future, task in futures.items()}
    finally:
        pool.shutdown(cancel_futures=True)
