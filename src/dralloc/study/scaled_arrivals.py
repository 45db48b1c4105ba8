"""More or fewer arrivals of the same kind, until the pods request a given multiple of the cluster's devices.

The method of the published experiments with the public traces (Weng et al., USENIX ATC 2023): pods arrive one by one in a random
order, drawn pods are appended, and none leaves.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from dralloc.study.comparison import BadInput
from dralloc.study.pod_factory import PodFactory
from dralloc.study.trace import Arrival, PodShape, Trace


def scaled_trace(trace: Trace, factory: PodFactory, capacity_milli: int, load: float, seed: int) -> Trace:
    """The pods of the trace in a random order, so many that they request `load` times the capacity; without durations.

    Pods are appended until the next one would request more. Of that one only one device is counted, as in the published
    experiments, so that the last pod can be a large one.
    """
    ordered = sorted(trace.arrivals, key=lambda each: each.name)
    draw = random.Random(seed)
    arrivals = list(ordered)
    draw.shuffle(arrivals)
    limit = load * capacity_milli
    requested = {each.name: factory.make(each).requested_milli for each in ordered}
    total = sum(requested.values())
    if not total:
        raise BadInput(
            f"{trace.name}: no pod requests devices, so that the arrivals cannot be scaled to a load of devices"
        )
    if total < limit:
        while total + _milli_of_one(each := draw.choice(ordered), requested) <= limit:
            arrivals.append(each)
            total += requested[each.name]
    else:
        while total > limit:
            total -= requested[arrivals.pop(draw.randrange(len(arrivals))).name]
    numbered = enumerate(arrivals)
    return Trace(
        trace.name,
        tuple(replace(each, name=f"{each.name}-{n}", at_s=float(n), duration_s=None) for n, each in numbered),
    )


def _milli_of_one(arrival: Arrival, requested: Mapping[str, int]) -> int:
    load = arrival.load
    return load.milli * min(load.devices, 1) if isinstance(load, PodShape) else requested[arrival.name]
