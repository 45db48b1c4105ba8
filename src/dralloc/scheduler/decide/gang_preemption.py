"""Which pods to evict so that a gang of higher priority fits. The question is put to the gang's own search, on views without them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1 import PREEMPT_NEVER
from dralloc.scheduler.contract import Placement, PlannedVictim
from dralloc.scheduler.decide.gang_cycle import GangCycle, GangRequest
from dralloc.scheduler.decide.preemption import view_for
from dralloc.scheduler.decide.preemption_candidates import VictimCandidates
from dralloc.scheduler.decide.victim_search import VictimQuestion, VictimUnit, cheapest_victims
from dralloc.scheduler.state.cluster_state import ClusterState

Places = tuple[tuple[Pod, Placement], ...]
# How often the gang is searched after a first set of victims is known.
CHECKS_MAX = 50


class GangPreemptionPlan(Struct, frozen=True, gc=False):
    """Once the victims are gone, the members fit: `places` prove it."""

    victims: tuple[PlannedVictim, ...]
    places: Places


def plan_for_gang(
    cluster: ClusterState, cycle: GangCycle, candidates: VictimCandidates, request: GangRequest, now: datetime
) -> GangPreemptionPlan | None:
    """The plan for a gang that has no place; None if no eviction helps. Its members are not counted on nominated nodes."""
    first = request.pods[0]
    priority, lowest = first.spec.priority or 0, cluster.placed_pods.lowest_priority
    is_nominated = any(pod.status.nominated_node_name for pod in request.pods)
    if (lowest is None or lowest >= priority) and not is_nominated:
        return None
    if any(pod.spec.preemption_policy == PREEMPT_NEVER for pod in request.pods):
        return None
    view, budgets = view_for(cluster, first, now), candidates.begin()
    if view.differs and (places := cycle.on(view).places(request, now)) is not None:
        return GangPreemptionPlan((), places)
    nodes = cluster.placed_pods.by_node()
    lower = dict.fromkeys(each for node in nodes for each in candidates.lower_than(priority, node, budgets))
    units = [candidate.unit for candidate in lower]

    def fits(gone: Sequence[VictimUnit]) -> Places | None:
        return cycle.on(view.without([key for unit in gone for key in unit.keys])).places(request, now)

    found = cheapest_victims(units, VictimQuestion(fits, allowed=budgets.allowed, checks_max=CHECKS_MAX))
    if found is None:
        return None
    keys = [key for unit in found.units for key in unit.keys]
    after = view.without(keys)
    placed = [pod for key in keys if (pod := cluster.placed_pods.find(key)) is not None]
    victims = tuple(PlannedVictim(each.pod, each.node, tuple(after.frees(each))) for each in placed)
    return GangPreemptionPlan(victims, found.proof)
