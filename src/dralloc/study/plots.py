"""Plots of runs for notebooks. They need matplotlib: `pip install 'dralloc[plots]'`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dralloc.study.comparison import allocation_curve, compared, stranded_curves
from dralloc.study.run import Run


def plot_allocation(runs: Iterable[Run]) -> Any:
    """A matplotlib figure: the allocated part of the devices over arrivals, a line for each trace and strategy."""
    found = list(runs)
    figure, axes = _figure("time, hours" if any(run.has_departures for run in found) else "requested devices, %")
    axes.set_ylabel("allocated devices, %")
    groups = compared(found)
    several = len({group.trace for group in groups}) > 1
    for group in groups:
        x, y = zip(*allocation_curve(group.runs), strict=True)
        axes.plot(x, y, label=f"{group.trace}, {group.strategy}" if several else group.strategy)
    axes.legend()
    return figure


def plot_stranded(runs: Iterable[Run]) -> Any:
    """A matplotlib figure: the stranded part of the devices over arrivals, by cause; the mean of the runs."""
    found = list(runs)
    figure, axes = _figure("arrivals")
    axes.set_ylabel("stranded devices, %")
    curves = stranded_curves(found, list(found[0].stranded_percent))
    arrivals = [x for x, _ in next(iter(curves.values()), [])]
    axes.stackplot(arrivals, *([y for _, y in points] for points in curves.values()), labels=list(curves))
    axes.legend(loc="upper left")
    return figure


def _figure(x_label: str) -> tuple[Any, Any]:
    try:
        # Not pyplot, which keeps every figure and needs a screen.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'dralloc[plots]'") from error
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x_label)
    axes.grid(alpha=0.3)
    return figure, axes
