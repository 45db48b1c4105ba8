"""The report of a study: one HTML file with its tables and plots, which loads nothing else and needs no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from math import ceil, floor, log10
from statistics import fmean
from typing import Final

from dralloc.study.comparison import ComparedRuns, allocation_curve, compared, stranded_curves
from dralloc.study.run import Run, ordered_sizes


def html_report(runs: Sequence[Run]) -> str:
    groups = compared(runs)
    traces = list(dict.fromkeys(group.trace for group in groups))
    style = (resources.files("dralloc.study") / "report.css").read_text("utf-8")
    links = "".join(f'<li><a href="#trace-{number}">{escape(name)}</a></li>' for number, name in enumerate(traces))
    sections = "".join(
        _trace_section(number, name, [group for group in groups if group.trace == name])
        for number, name in enumerate(traces)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Placement study</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<style>{style}</style></head><body>"
        f"<header><h1>Placement study</h1><p>{escape(_subject(runs))}</p></header>"
        f'<nav aria-label="Traces"><ul><li><a href="#comparison">Comparison</a></li>{links}</ul></nav>'
        f'<main><section id="comparison"><h2>Strategies side by side</h2>{_overview(groups, traces)}</section>{sections}</main>'
        "</body></html>\n"
    )


def _subject(runs: Sequence[Run]) -> str:
    clusters = ", ".join(dict.fromkeys(run.setting.cluster for run in runs))
    seeds = len({run.setting.seed for run in runs})
    loads = {run.setting.load for run in runs if run.setting.load is not None}
    load = "".join(f", pods request {100 * each:g} % of the devices" for each in sorted(loads))
    devices = ", ".join(dict.fromkeys(f"{run.capacity_milli / 1000:,.0f} devices" for run in runs))
    return f"Cluster {clusters}: {devices}{load}; {seeds} {'seed' if seeds == 1 else 'seeds'}"


def _overview(groups: Sequence[ComparedRuns], traces: Sequence[str]) -> str:
    colours = _colours(groups)
    bars = [
        (
            trace,
            [
                (each.strategy, colours[each.strategy], each.unallocated_percent)
                for each in groups
                if each.trace == trace
            ],
        )
        for trace in traces
    ]
    plot = bar_plot("Unallocated devices by trace and strategy", "unallocated devices, %", bars)
    return f"<figure>{plot}{legend(colours.items())}</figure>{_table(*_result_rows(groups))}"


def _colours(groups: Sequence[ComparedRuns]) -> dict[str, int]:
    return {name: index for index, name in enumerate(dict.fromkeys(group.strategy for group in groups))}


def _trace_section(number: int, trace: str, groups: Sequence[ComparedRuns]) -> str:
    parts: list[str] = [f"<h2>{escape(trace)}</h2><h3>Allocation over arrivals</h3>", _allocation_figure(groups)]
    if any(group.stranded_percent for group in groups):
        parts.append("<h3>Fragmentation by cause</h3>")
        parts.append("<p>Idle parts of devices that no typical pod of the trace can use where they are.</p>")
        parts += (_stranded_figures(groups), _table(*_stranded_rows(groups)))
    if any(group.unplaced_by_size for group in groups):
        parts.append("<h3>Refused pods by requested devices</h3>")
        parts.append(_table(*_refused_rows(groups)))
    return f'<section id="trace-{number}">{"".join(parts)}</section>'


def _allocation_figure(groups: Sequence[ComparedRuns]) -> str:
    colours = _colours(groups)
    series = [Series(group.strategy, allocation_curve(group.runs), colours[group.strategy]) for group in groups]
    leaves = any(run.has_departures for group in groups for run in group.runs)
    over = "time, hours" if leaves else "requested devices, %"
    plot = line_plot(f"Allocated devices over {over}", over, "allocated devices, %", series)
    return f"<figure>{plot}{legend(colours.items())}</figure>"


def _stranded_figures(groups: Sequence[ComparedRuns]) -> str:
    causes = list(dict.fromkeys(cause for group in groups for cause in group.stranded_percent))
    curves = {group.strategy: stranded_curves(group.runs, causes) for group in groups}
    y_max = max((_total(layers) for layers in curves.values()), default=1)
    figures = "".join(
        f"<figure><figcaption>{escape(strategy)}</figcaption>{_areas(strategy, layers, y_max)}</figure>"
        for strategy, layers in curves.items()
    )
    return f'{legend((cause, index) for index, cause in enumerate(causes))}<div class="multiples">{figures}</div>'


def _total(layers: dict[str, list[tuple[float, float]]]) -> float:
    sums = [sum(value for _, value in points) for points in zip(*layers.values(), strict=True)]
    return max(sums, default=0.0)


def _areas(strategy: str, layers: dict[str, list[tuple[float, float]]], y_max: float) -> str:
    series = [Series(cause, points, index) for index, (cause, points) in enumerate(layers.items())]
    label = f"Stranded devices by cause with {strategy}"
    return area_plot(label, "arrivals", "stranded devices, %", series, y_max)


# --- Tables -------------------------------------------------------------------------------------------------------

Rows = list[list[str]]


def _result_rows(groups: Sequence[ComparedRuns]) -> tuple[list[str], Rows]:
    header = ["Trace", "Strategy", "Allocated", "Unallocated", "Stranded", "Pods", "Refused", "Mean wait", "Moves"]
    rows = [
        [
            group.trace,
            group.strategy,
            f"{100 - group.unallocated_percent:.2f} %",
            f"{group.unallocated_percent:.2f} %" + (f" ± {group.deviation:.2f}" if len(group.runs) > 1 else ""),
            f"{sum(group.stranded_percent.values()):.2f} %",
            f"{group.mean('pods'):,.0f}",
            f"{group.mean('unplaced'):,.0f}",
            f"{group.mean('wait_s', 'mean'):,.1f} s",
            f"{fmean(run.moves for run in group.runs):,.0f}",
        ]
        for group in groups
    ]
    return header, rows


def _stranded_rows(groups: Sequence[ComparedRuns]) -> tuple[list[str], Rows]:
    causes = list(dict.fromkeys(cause for group in groups for cause in group.stranded_percent))
    rows = [
        [group.strategy, *(f"{group.stranded_percent.get(cause, 0.0):.2f} %" for cause in causes)] for group in groups
    ]
    return ["Strategy", *causes], rows


def _refused_rows(groups: Sequence[ComparedRuns]) -> tuple[list[str], Rows]:
    sizes = ordered_sizes({size for group in groups for size in group.unplaced_by_size})
    rows = [[group.strategy, *(f"{group.unplaced_by_size.get(size, 0.0):,.0f}" for size in sizes)] for group in groups]
    return ["Strategy", *sizes], rows


def _table(header: Sequence[str], rows: Rows) -> str:
    return f'<div class="scrolled" tabindex="0">{"".join(_table_parts(header, rows))}</div>'


def _table_parts(header: Sequence[str], rows: Rows) -> Iterator[str]:
    yield "<table><thead><tr>"
    yield from (f'<th scope="col">{escape(cell)}</th>' for cell in header)
    yield "</tr></thead><tbody>"
    for first, *cells in rows:
        yield f'<tr><th scope="row">{escape(first)}</th>'
        yield from (f"<td>{escape(cell)}</td>" for cell in cells)
        yield "</tr>"
    yield "</tbody></table>"


# --- Svg plots ------------------------------------------------------------------------------------------------------
# Plots as SVG text: lines, stacked areas and bars. Colours come from the style sheet of the page, by the classes of
# series.


WIDTH: Final = 720
HEIGHT: Final = 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 12, 44
SERIES_COLOURS: Final = 8
BAR_WIDTH_MAX: Final = 90

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Series:
    """Values under a name. Each name has its own colour, by its index."""

    name: str
    points: Points
    index: int


@dataclass(frozen=True, slots=True)
class Axes:
    """The labels of the axes and the range of values; the vertical axis begins at `y_min`."""

    x_label: str
    y_label: str
    x_max: float
    y_max: float
    y_min: float = 0.0

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value / self.x_max if self.x_max else 0)

    def y(self, value: float) -> float:
        height = self.y_max - self.y_min
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ((value - self.y_min) / height if height else 0)


def line_plot(label: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    """One line for each series."""
    points = [point for each in series for point in each.points]
    axes = Axes(x_label, y_label, max((x for x, _ in points), default=1), _nice(max((y for _, y in points), default=1)))
    return _figure(label, [*_grid(axes), *(part for each in series for part in _line(axes, each))])


def area_plot(label: str, x_label: str, y_label: str, layers: Sequence[Series], y_max: float) -> str:
    """The series on top of each other."""
    x_max = max((x for each in layers for x, _ in each.points), default=1)
    axes = Axes(x_label, y_label, x_max, _nice(y_max))
    parts = list(_grid(axes))
    below: list[tuple[float, float]] = [(x, 0.0) for x, _ in layers[0].points] if layers else []
    for layer in layers:
        above = [(x, low + value) for (x, low), (_, value) in zip(below, layer.points, strict=True)]
        outline = [*above, *reversed(below)]
        parts.append(
            f'<polygon class="area s{layer.index % SERIES_COLOURS}" points="{_coordinates(axes, outline)}">'
            f"<title>{escape(layer.name)}</title></polygon>"
        )
        below = above
    return _figure(label, parts)


def bar_plot(label: str, y_label: str, groups: Sequence[tuple[str, Sequence[tuple[str, int, float]]]]) -> str:
    """Groups of bars; a bar has a name, the index of its colour and a value."""
    values = [value for _, bars in groups for _, _, value in bars]
    axes = Axes("", y_label, 1, _nice(max(values, default=1)))
    parts = list(_grid(axes, with_x=False))
    slot = (WIDTH - LEFT - RIGHT) / max(len(groups), 1)
    for number, (name, bars) in enumerate(groups):
        width = min(slot * 0.8 / max(len(bars), 1), BAR_WIDTH_MAX)
        start = LEFT + slot * (number + 0.5) - width * len(bars) / 2
        for index, (bar, colour, value) in enumerate(bars):
            top = axes.y(value)
            parts.append(
                f'<rect class="bar s{colour % SERIES_COLOURS}" x="{start + width * index:.1f}" y="{top:.1f}" '
                f'width="{max(width - 2, 1):.1f}" height="{HEIGHT - BOTTOM - top:.1f}">'
                f"<title>{escape(name)}, {escape(bar)}: {value:.2f}</title></rect>"
            )
            if width > 30:
                middle = start + width * (index + 0.5)
                parts.append(f'<text class="value" x="{middle:.1f}" y="{top - 4:.1f}">{value:.2f}</text>')
        middle = LEFT + slot * (number + 0.5)
        parts.append(f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - BOTTOM + 18}">{escape(name)}</text>')
    return _figure(label, parts)


def legend(names: Iterable[tuple[str, int]]) -> str:
    """Names with the colours of their series."""
    items = "".join(
        f'<li><span class="key s{index % SERIES_COLOURS}" aria-hidden="true"></span>{escape(name)}</li>'
        for name, index in names
    )
    return f'<ul class="legend">{items}</ul>'


def _figure(label: str, parts: Iterable[str]) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _line(axes: Axes, series: Series) -> Iterator[str]:
    dashes = ' stroke-dasharray="6 4"' if series.index >= SERIES_COLOURS else ""
    yield (
        f'<polyline class="line s{series.index % SERIES_COLOURS}"{dashes} points="{_coordinates(axes, series.points)}">'
        f"<title>{escape(series.name)}</title></polyline>"
    )


def _coordinates(axes: Axes, points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)


def _grid(axes: Axes, *, with_x: bool = True) -> Iterator[str]:
    for value in _ticks(axes.y_min, axes.y_max):
        y = axes.y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick left" x="{LEFT - 8}" y="{y + 4:.1f}">{value:g}</text>'
    for value in _ticks(0, axes.x_max) if with_x else ():
        yield f'<text class="tick" x="{axes.x(value):.1f}" y="{HEIGHT - BOTTOM + 18}">{value:g}</text>'
    middle = (HEIGHT - BOTTOM + TOP) / 2
    yield f'<text class="axis" x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 6}">{escape(axes.x_label)}</text>'
    yield f'<text class="axis" transform="translate(14 {middle}) rotate(-90)">{escape(axes.y_label)}</text>'


def _ticks(low: float, high: float) -> list[float]:
    step = _step((high - low) / 6)
    return [number * step for number in range(ceil(low / step), floor(high / step + 1e-9) + 1)]


def _nice(value: float) -> float:
    """The next tick at or above a value."""
    step = _step(value / 5)
    return ceil(value / step - 1e-9) * step


def _step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
