"""Why no node takes a pod, where masks tell which nodes fit: the reasons of all nodes without a look at each.

The order of the checks is that of a verdict (`NodeJudge`): what the node offers, what its pods leave, devices that the pod has already,
and devices that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonGroup, groups_of
from dralloc.scheduler.contract import DYNAMIC_RESOURCES
from dralloc.scheduler.decide.node_masks import FitMask
from dralloc.scheduler.decide.node_reasons import about_node, out_of_reach
from dralloc.scheduler.decide.node_rooms import NodeNames


def groups_and_plugins(mask: FitMask) -> tuple[tuple[ReasonGroup, ...], frozenset[str]]:
    """The reasons as of the last `catch_up` of the mask, and the plugins of Kubernetes that reject the nodes. No node fits."""
    found, names = list(_reasons(mask)), mask.rooms.names
    groups = groups_of((reason, NodeNames(nodes, names)) for _, reason, nodes in found)
    return groups, frozenset(plugin for plugin, *_ in found)


def _reasons(mask: FitMask) -> Iterator[tuple[str, Reason, int]]:
    """The plugin of Kubernetes, the reason and its nodes."""
    admitted = mask.admitted
    for misfit, nodes in admitted.misfits.items():
        if nodes:
            yield misfit.plugin, about_node(misfit.reason), nodes
    reachable, away = admitted.mask, dict(admitted.away)
    for misfit, nodes in mask.rooms.shortages(mask.amounts, reachable | sum(away.values())):
        yield misfit.plugin, about_node(misfit.reason), nodes
        reachable &= ~nodes
        away = {held: others & ~nodes for held, others in away.items()}
    for held, nodes in away.items():
        if nodes:
            yield DYNAMIC_RESOURCES, out_of_reach(held.claim_id, held.place), nodes
    if mask.served is not None and reachable:
        for reason, nodes in mask.served.reasons.of(reachable):
            yield DYNAMIC_RESOURCES, reason, nodes
