"""The report of a study: one HTML file with its tables and plots, which loads nothing else and needs no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from statistics import fmean

from dralloc.placement_study.comparison import ComparedRuns, allocation_curve, compared, stranded_curves
from dralloc.placement_study.run import Run, ordered_sizes
from dralloc.placement_study.svg_plots import Series, area_plot, bar_plot, legend, line_plot


def html_report(runs: Sequence[Run]) -> str:
    groups = compared(runs)
    traces = list(dict.fromkeys(group.trace for group in groups))
    style = (resources.files("dralloc.placement_study") / "report.css").read_text("utf-8")
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
