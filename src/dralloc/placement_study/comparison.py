"""Runs of one trace and strategy, with several seeds, as one row: means over the seeds."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from dralloc.placement_study.run import Run, ordered_sizes


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The runs of one trace with one strategy."""

    trace: str
    strategy: str
    runs: tuple[Run, ...]

    @property
    def unallocated_percent(self) -> float:
        return fmean(run.unallocated_percent for run in self.runs)

    @property
    def deviation(self) -> float:
        """The standard deviation of the unallocated part over the seeds."""
        return stdev([run.unallocated_percent for run in self.runs]) if len(self.runs) > 1 else 0.0

    @property
    def stranded_percent(self) -> dict[str, float]:
        parts = [run.stranded_percent for run in self.runs]
        causes = dict.fromkeys(cause for part in parts for cause in part)
        return {cause: fmean(part.get(cause, 0.0) for part in parts) for cause in causes}

    @property
    def unplaced_by_size(self) -> dict[str, float]:
        """The mean number of pods that no node ever took."""
        counts: Counter[str] = Counter()
        for run in self.runs:
            counts.update(run.unplaced_by_size)
        return {size: counts[size] / len(self.runs) for size in ordered_sizes(counts)}

    def mean(self, *keys: str) -> float:
        """The mean of a value of the summaries."""
        values: list[float] = []
        for run in self.runs:
            value: Any = run.summary()
            for key in keys:
                value = value[key]
            values.append(value)
        return fmean(values)

    def values(self) -> dict[str, Any]:
        return {
            "trace": self.trace,
            "strategy": self.strategy,
            "seeds": [run.setting.seed for run in self.runs],
            "pods": self.mean("pods"),
            "placed": self.mean("placed"),
            "unplaced": self.mean("unplaced"),
            "allocated_percent": 100 - self.unallocated_percent,
            "unallocated_percent": self.unallocated_percent,
            "unallocated_percent_deviation": self.deviation,
            "stranded_percent": self.stranded_percent,
            "unplaced_by_size": self.unplaced_by_size,
            "wait_s": {"mean": self.mean("wait_s", "mean"), "p95": self.mean("wait_s", "p95")},
            "moves": self.mean("moves"),
            "decisions_per_s": self.mean("decisions_per_s"),
        }


def compared(runs: Iterable[Run]) -> list[ComparedRuns]:
    """The runs by trace and strategy, in their order."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.setting.trace, run.setting.strategy), []).append(run)
    return [ComparedRuns(trace, strategy, tuple(members)) for (trace, strategy), members in groups.items()]


def allocation_curve(runs: Sequence[Run], points: int = 200) -> list[tuple[float, float]]:
    """The allocated part of the devices in percent; the mean of the runs at each point.

    Over the percentage of the devices that arrived pods request; where pods leave, over time in hours.
    """
    xs = [_progress_of(run) for run in runs]
    end = min(each[-1] for each in xs)
    return [
        (at, fmean(_allocated_at(run, x, at) for run, x in zip(runs, xs, strict=True)))
        for at in (end * number / points for number in range(points + 1))
    ]


def _progress_of(run: Run) -> list[float]:
    if run.has_departures:
        return [time_s / 3600 for time_s in run.steps["time_s"]]
    return [100 * milli / run.capacity_milli if run.capacity_milli else 0.0 for milli in run.steps["arrived_milli"]]


def _allocated_at(run: Run, progress: Sequence[float], at: float) -> float:
    """After the last arrival up to this point."""
    index = bisect_right(progress, at) - 1
    return 100 * run.steps["allocated_milli"][index] / run.capacity_milli if index >= 0 and run.capacity_milli else 0.0


def stranded_curves(runs: Sequence[Run], causes: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """By cause: the stranded part of the devices in percent at the sampled arrivals; the mean of the runs."""
    length = min(len(run.stranded["arrival"]) for run in runs)
    return {
        cause: [
            (
                fmean(run.stranded["arrival"][index] for run in runs),
                fmean(100 * run.stranded[cause][index] / run.capacity_milli for run in runs),
            )
            for index in range(length)
        ]
        for cause in causes
    }
