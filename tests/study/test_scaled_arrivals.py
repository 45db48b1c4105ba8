"""Arrivals that are scaled to a load: step by step as the published experiments do it."""

from __future__ import annotations

import random

import pytest

from dralloc.study.cluster import Cluster
from dralloc.study.cluster_files import described_cluster
from dralloc.study.comparison import BadInput
from dralloc.study.pod_factory import PodFactory
from dralloc.study.scaled_arrivals import scaled_trace
from dralloc.study.synthetic_trace import synthetic_trace
from dralloc.study.trace import Arrival, PodShape, Trace

CLUSTER = described_cluster("4x8:96:768")
CAPACITY = 32_000


def published(trace: Trace, load: float, seed: int) -> list[PodShape]:
    """The steps of the experiment, written down a second time."""
    original = sorted(trace.arrivals, key=lambda each: each.name)
    shapes = [each.load for each in original if isinstance(each.load, PodShape)]
    draw = random.Random(seed)
    order = list(shapes)
    draw.shuffle(order)
    total = sum(each.devices * each.milli for each in order)
    if total < load * CAPACITY:
        while True:
            each = draw.choice(shapes)
            if total + (each.milli if each.devices else 0) > load * CAPACITY:
                return order
            order.append(each)
            total += each.devices * each.milli
    while total > load * CAPACITY:
        gone = order.pop(draw.randrange(len(order)))
        total -= gone.devices * gone.milli
    return order


def scaled(trace: Trace, load: float, seed: int, cluster: Cluster = CLUSTER) -> Trace:
    return scaled_trace(trace, PodFactory(trace, cluster), CAPACITY, load, seed)


@pytest.mark.parametrize("pods", [20, 200])
@pytest.mark.parametrize("seed", [42, 43, 7])
def test_arrivals_are_those_of_the_published_steps(pods: int, seed: int) -> None:
    trace = synthetic_trace(f"pods={pods}; shapes=0", seed=seed)
    made = scaled(trace, 1.3, seed)
    assert [each.load for each in made.arrivals] == published(trace, 1.3, seed)
    assert len({each.name for each in made.arrivals}) == len(made.arrivals)
    assert not made.has_departures
    assert [each.at_s for each in made.arrivals] == list(range(len(made.arrivals)))


def test_only_one_device_of_the_next_pod_counts() -> None:
    """As published: an eight-device pod is appended as long as one more device would not be too much."""
    trace = Trace("one", (Arrival("a", PodShape(1000, 1, 8)),))
    assert sum(8 for _ in scaled(trace, 1.0, 1).arrivals) == 32
    assert sum(8 for _ in scaled(trace, 1.2, 1).arrivals) == 40


def test_a_trace_without_devices_cannot_be_scaled() -> None:
    trace = Trace("plain", (Arrival("a", PodShape(1000, 1)),))
    with pytest.raises(BadInput, match="plain: no pod requests devices"):
        scaled(trace, 1.3, 1)
