"""The result of one simulation, as columns that data frames take directly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from dralloc.study.trace import SIZES

Columns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class RunSetting:
    """What was simulated. `load` is the multiple of the cluster's devices that pods were drawn up to, if they were."""

    trace: str
    cluster: str
    strategy: str
    seed: int
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated trace: the columns of its tables, and totals.

    `steps`: one row for each arrival, after its decision. `pods`: one row for each pod. `stranded`: idle parts of devices that no
    typical pod can use, by cause, at some arrivals. Amounts are thousandths of a device, times seconds.
    `decide_s` is the processor time that decisions took.
    """

    setting: RunSetting
    capacity_milli: int
    has_departures: bool
    steps: Columns
    pods: Columns
    stranded: Columns
    moves: int = 0
    decisions: int = 0
    decide_s: float = 0.0
    notes: tuple[str, ...] = field(default=())

    # --- Figures ----------------------------------------------------------------------------------------------------

    @property
    def allocated_percent(self) -> float:
        """The allocated part of the devices.

        Where pods leave: the mean over the time of arrivals. Where the load was set: the mean over the arrivals at that load,
        as in the published experiments. Else after the last arrival.
        """
        allocated = self.steps["allocated_milli"]
        if self.has_departures:
            return self._percent(_mean_over_time(self.steps["time_s"], allocated))
        if self.setting.load is not None:
            target = round(100 * self.setting.load)
            arrived = self.steps["arrived_milli"]
            at_load = [part for part, sum_ in zip(allocated, arrived, strict=True) if self._rounded(sum_) == target]
            if at_load:
                return self._percent(sum(at_load) / len(at_load))
        return self._percent(allocated[-1] if allocated else 0)

    @property
    def unallocated_percent(self) -> float:
        """The part of the devices that is not allocated at the end."""
        return 100 - self.allocated_percent

    def _percent(self, milli: float) -> float:
        return 100 * milli / self.capacity_milli if self.capacity_milli else 0.0

    def _rounded(self, milli: int) -> int:
        return round(milli * 100 / self.capacity_milli) if self.capacity_milli else 0

    @property
    def stranded_percent(self) -> dict[str, float]:
        """The last sample of each cause."""
        causes = (name for name in self.stranded if name not in ("arrival", "time_s"))
        return {name: self._percent(self.stranded[name][-1]) for name in causes if self.stranded[name]}

    @property
    def unplaced_by_size(self) -> dict[str, int]:
        """The number of pods that no node ever took, by the devices that they request."""
        counts = Counter(
            size for size, placed in zip(self.pods["size"], self.pods["placed_s"], strict=True) if placed is None
        )
        return {size: counts[size] for size in ordered_sizes(counts)}

    @property
    def waits_s(self) -> list[float]:
        """How long each pod that was placed waited, ascending."""
        return sorted(wait for wait in self.pods["waited_s"] if wait is not None)

    def summary(self) -> dict[str, Any]:
        """Everything that tables show, as plain values."""
        waits = self.waits_s
        unplaced = self.unplaced_by_size
        return {
            **asdict(self.setting),
            "pods": len(self.pods["name"]),
            "placed": len(waits),
            "unplaced": sum(unplaced.values()),
            "capacity_milli": self.capacity_milli,
            "allocated_percent": self.allocated_percent,
            "unallocated_percent": self.unallocated_percent,
            "stranded_percent": self.stranded_percent,
            "unplaced_by_size": unplaced,
            "wait_s": {"mean": sum(waits) / len(waits) if waits else 0.0, "p95": _quantile(waits, 0.95)},
            "moves": self.moves,
            "decisions": self.decisions,
            "decisions_per_s": self.decisions / self.decide_s if self.decide_s else 0.0,
        }

    # --- Records ----------------------------------------------------------------------------------------------------

    def records(self) -> list[dict[str, Any]]:
        """The rows of `pods`."""
        names = list(self.pods)
        return [dict(zip(names, row, strict=True)) for row in zip(*self.pods.values(), strict=True)]

    def to_values(self) -> dict[str, Any]:
        """Plain values, from which `of_values` makes an equal run."""
        return asdict(self)

    @classmethod
    def of_values(cls, values: dict[str, Any]) -> Run:
        """The run that `values` wrote."""
        setting = RunSetting(**values["setting"])
        return cls(**{**values, "setting": setting, "notes": tuple(values["notes"])})


def ordered_sizes(sizes: Iterable[str]) -> list[str]:
    """The names of sizes, the smallest first."""
    return sorted(sizes, key=lambda size: (SIZES.index(size) if size in SIZES else len(SIZES), size))


def _mean_over_time(times: Sequence[float], amounts: Sequence[int]) -> float:
    """The mean of a step function. If no time passes, the last amount."""
    total = sum(amount * (end - start) for (start, end), amount in zip(pairwise(times), amounts, strict=False))
    passed = times[-1] - times[0] if times else 0.0
    return total / passed if passed else (amounts[-1] if amounts else 0.0)


def _quantile(ascending: Sequence[float], part: float) -> float:
    return ascending[min(len(ascending) - 1, int(part * len(ascending)))] if ascending else 0.0
