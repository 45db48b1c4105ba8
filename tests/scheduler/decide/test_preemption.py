"""Plans of preemption: every plan is enough, and the cheapest one by brute force over all sets of victims."""

from __future__ import annotations

from random import Random

import pytest

from dralloc.kube.pod_v1 import Pod
from dralloc.scheduler.contract import PreemptionPlan
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.preemption import PreemptionPlanner
from tests.scheduler.cluster_values import NOW
from tests.scheduler.decide.preemption_model import GATES, World, random_world

CASES = 60


def planned(world: World, pod: Pod) -> PreemptionPlan | str:
    state = world.state()
    found = PreemptionPlanner(state, Cycle(state, GATES)).plan(pod, NOW)
    return found if isinstance(found, PreemptionPlan) else found.message


@pytest.mark.parametrize("seed", range(CASES))
def test_plans_are_sufficient_and_cheapest(seed: int) -> None:
    world, pod = random_world(Random(seed))
    if world.fits(pod):
        return
    plan, least = planned(world, pod), world.cheapest(pod)
    if least is None:
        assert not isinstance(plan, PreemptionPlan), plan
        return
    assert isinstance(plan, PreemptionPlan), (plan, least)
    names = [victim.pod.metadata.name for victim in plan.victims]
    assert world.fits(pod, names), names
    assert plan.is_cheapest
    assert world.cost(names) == least, names
    assert least[:4] == plan.cost[:4]
