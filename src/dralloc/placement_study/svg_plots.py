"""Plots as SVG text: lines, stacked areas and bars. Colours come from the style sheet of the page, by the classes of series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final

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
