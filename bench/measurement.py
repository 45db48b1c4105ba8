"""The definition of a benchmark, and time measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, and its target: a maximum or, for rates, a minimum."""

    name: str
    value: float
    unit: str
    target: float | None = None
    more_is_better: bool = False

    @property
    def is_met(self) -> bool | None:
        """True if the target is met; None if there is no target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.more_is_better else self.value <= self.target


Benchmark = Callable[[], Iterable[Figure]]
BENCHMARKS: Final[dict[str, Benchmark]] = {}


def benchmark(name: str) -> Callable[[Benchmark], Benchmark]:
    """Registers a function under a name."""

    def register(run: Benchmark) -> Benchmark:
        assert name not in BENCHMARKS, f"two benchmarks have the name {name}"
        BENCHMARKS[name] = run
        return run

    return register


def best_time_s(action: Callable[[], object], repeats: int = 5) -> float:
    """Returns the shortest of several runs, the one least disturbed by other load."""
    return min(_time_s(action) for _ in range(repeats))


def _time_s(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
