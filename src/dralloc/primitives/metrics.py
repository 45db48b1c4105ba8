"""Counters, gauges and histograms, and their Prometheus text exposition.

Written here because the format is small and a request must not pay for locks: each component counts on one event loop.
The current time is an argument, as everywhere in this layer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final, Protocol

from dralloc.primitives.features import GATES, FeatureGates

# Seconds; the buckets of Kubernetes' own request histograms, thinned out.
LATENCY_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

LabelValues = tuple[str, ...]


class Metric(Protocol):
    """A metric that can print itself in Prometheus' text format."""

    type: str
    name: str
    help_text: str
    labels: tuple[str, ...]

    def lines(self) -> Iterator[str]: ...


class CounterMetric:
    """A monotonic number for each combination of label values."""

    type = "counter"

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.name, self.help_text, self.labels = name, help_text, tuple(labels)
        self._values: defaultdict[LabelValues, float] = defaultdict(float, {} if labels else {(): 0.0})

    def add(self, *label_values: str, amount: float = 1.0) -> None:
        self._values[label_values] += amount

    def add_to(self, total: CounterMetric) -> None:
        for label_values, value in self._values.items():
            total.add(*label_values, amount=value)

    def value(self, *label_values: str) -> float:
        return self._values.get(label_values, 0.0)

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help_text, self.type)
        for label_values, value in sorted(self._values.items()):
            yield f"{self.name}{_labels(self.labels, label_values)} {_number(value)}"


class GaugeMetric:
    """A number that goes up and down; set on change, or read at exposition."""

    type = "gauge"

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str] = (),
        read: Callable[[], Iterable[tuple[LabelValues, float]]] | None = None,
    ) -> None:
        self.name, self.help_text, self.labels = name, help_text, tuple(labels)
        self._values: dict[LabelValues, float] = {}
        self._read = read

    def __getstate__(self) -> dict[str, Any]:
        """A copy for another process has the value of now."""
        values = dict(self._read()) if self._read else self._values
        return {**self.__dict__, "_values": values, "_read": None}

    def set(self, *label_values: str, value: float) -> None:
        self._values[label_values] = value

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help_text, self.type)
        for label_values, value in sorted(self._read() if self._read else self._values.items()):
            yield f"{self.name}{_labels(self.labels, label_values)} {_number(value)}"


class HistogramMetric:
    """The distribution of a measured value over buckets, for each combination of label values."""

    type = "histogram"

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str] = (), buckets: Sequence[float] = LATENCY_BUCKETS_S
    ) -> None:
        self.name, self.help_text, self.labels, self.buckets = name, help_text, tuple(labels), tuple(buckets)
        # One count more than there are buckets, for values above all of them.
        self._counts: defaultdict[LabelValues, list[int]] = defaultdict(partial(list, (0,) * (len(self.buckets) + 1)))
        self._sums: defaultdict[LabelValues, float] = defaultdict(float)

    def observe(self, *label_values: str, value: float) -> None:
        self._counts[label_values][bisect_left(self.buckets, value)] += 1
        self._sums[label_values] += value

    def count(self, *label_values: str) -> int:
        return sum(self._counts.get(label_values, ()))

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help_text, self.type)
        bounds = [*(_number(bound) for bound in self.buckets), "+Inf"]
        for label_values, counts in sorted(self._counts.items()):
            for bound, count in zip(bounds, accumulate(counts), strict=True):
                yield f"{self.name}_bucket{_labels((*self.labels, 'le'), (*label_values, bound))} {count}"
            labels = _labels(self.labels, label_values)
            yield f"{self.name}_sum{labels} {_number(self._sums[label_values])}"
            yield f"{self.name}_count{labels} {sum(counts)}"


def exposition(metrics: Iterable[Metric]) -> str:
    """Returns all metrics in the Prometheus text format 0.0.4."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def added_up(metrics: Iterable[Metric]) -> Iterable[Metric]:
    """Returns metrics of several components; counters of the same name become one."""
    by_name: dict[str, Metric] = {}
    for metric in metrics:
        known = by_name.get(metric.name)
        by_name[metric.name] = metric if known is None else _sum(known, metric)
    return by_name.values()


def _sum(one: Metric, other: Metric) -> CounterMetric:
    assert isinstance(one, CounterMetric), f"only counters can be added: {one.name}"
    assert isinstance(other, CounterMetric), f"only counters can be added: {other.name}"
    total = CounterMetric(one.name, one.help_text, one.labels)
    for metric in (one, other):
        metric.add_to(total)
    return total


def _head(name: str, help_text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {_escaped(help_text)}"
    yield f"# TYPE {name} {kind}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value, quote=True)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


# --- Gate metric ----------------------------------------------------------------------------------------------------
# The feature gates of a component as a metric, under the name and with the labels that components of Kubernetes
# use.


NAME: Final = "kubernetes_feature_enabled"
_SAMPLE: Final = re.compile(rf'^{NAME}{{(?:[^}}]*,)?name="(\w+)"[^}}]*}} ([0-9.e+]+)', re.M)


def gate_metric(gates: FeatureGates) -> GaugeMetric:
    """1 for each gate that is on, 0 for the others."""
    return GaugeMetric(
        NAME,
        "Feature gates of this component: 1 if on.",
        ("name", "stage"),
        lambda: [((gate.name, gate.stage), float(gate.name in gates)) for gate in GATES.values()],
    )


def gates_in(exposition: str) -> dict[str, bool]:
    """The gates that the metrics of a component say; empty if they say none."""
    return {name: float(value) != 0 for name, value in _SAMPLE.findall(exposition)}
