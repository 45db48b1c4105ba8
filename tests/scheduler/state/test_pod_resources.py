"""What a pod takes from its node."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from dralloc.kube.pod_v1 import PodSpec
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.state.pod_resources import resources_of
from tests.scheduler.pod_specs import container, spec


@dataclass(frozen=True)
class NeedsCase:
    id: str
    spec: PodSpec
    want: dict[str, str]


NEEDS = [
    NeedsCase("nothing but a place", spec(), {"pods": "1"}),
    NeedsCase(
        "the sum of the containers",
        spec(containers=[container(cpu="1"), container("b", cpu="500m", memory="1Gi")]),
        {"cpu": "1500m", "memory": "1Gi", "pods": "1"},
    ),
    NeedsCase(
        "an initial container that needs more than the rest",
        spec(containers=[container(cpu="1")], initContainers=[container("init", cpu="3")]),
        {"cpu": "3", "pods": "1"},
    ),
    NeedsCase(
        "a sidecar that runs beside the containers, and beside what starts after it",
        spec(
            containers=[container(cpu="1")],
            initContainers=[
                container("early", cpu="2"),
                container("sidecar", "Always", cpu="1"),
                container("late", cpu="2"),
            ],
        ),
        {"cpu": "3", "pods": "1"},
    ),
    NeedsCase(
        "what the pod states as a whole, and its overhead on top",
        spec(
            containers=[container(cpu="1", memory="1Gi")],
            resources={"requests": {"cpu": "4"}},
            overhead={"memory": "1Gi"},
        ),
        {"cpu": "4", "memory": "2Gi", "pods": "1"},
    ),
    NeedsCase(
        "other resources, but not those it wants none of",
        spec(containers=[container(**{"example.com/fpga": "2", "example.com/none": "0"})]),
        {"example.com/fpga": "2", "pods": "1"},
    ),
]


@pytest.mark.parametrize("case", NEEDS, ids=lambda case: case.id)
def test_the_resources_of_a_pod(case: NeedsCase) -> None:
    assert resources_of(case.spec).amounts == {name: Quantity.parse(text).nanos for name, text in case.want.items()}


def test_many_sidecars_with_resources_of_their_own_are_added_up_at_once() -> None:
    """What all sidecars use was looked at again for each: 11 s of processor time for a pod of 1 MB, in the API server, too."""
    count = 10_000
    sidecars = [container(f"c{number}", "Always", **{f"example.com/r{number}": "1"}) for number in range(count)]
    stated = spec(initContainers=sidecars)
    started = time.process_time()
    amounts = resources_of(stated).amounts
    assert time.process_time() - started < 2
    assert len(amounts) == count + 1
