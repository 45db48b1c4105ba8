"""Liveness checks for an idle cluster: pods and gangs that wait although they could run.

The scheduler's own cycles decide on a fresh view of the API's objects. A pod or a gang that they would place and that waits is stuck.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import count

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.kube.pod_claims import group_name, group_reference, is_made_for, is_shared
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.scheduler.contract import Placement
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.gang_cycle import GangCycle, GangPlacement, GangRequest
from dralloc.scheduler.group_requests import GroupRequests
from dralloc.scheduler.state.group_members import PodGroupKey, group_of
from tests.simulator.idle_checks import StoredObjects
from tests.simulator.simulated_gates import GATES


def stuck_pods(objects: StoredObjects, now: datetime) -> Iterator[str]:
    """A message for each pod or gang that waits for nothing."""
    engine = Engine(_cluster_objects(objects), now)
    # A group that is about to go gets no claims.
    groups = {key_of(each): each for each in objects.groups if each.metadata.deletion_timestamp is None}
    gangs: dict[PodGroupKey, list[Pod]] = {}
    for pod in objects.pods:
        if pod.is_finished:
            continue
        key = group_of(pod, engine.cluster.find_claim, pod_groups=True)
        if key is not None:
            gangs.setdefault(key, []).append(pod)
        if pod.is_terminating:
            yield f"pod {pod.metadata.name} is deleted and still exists"
        elif pod.spec.node_name:
            if pod.status.phase != "Running":
                yield f"pod {pod.metadata.name} is bound to {pod.spec.node_name} and does not run"
        elif group_name(pod) and _group_key(pod) not in groups:
            continue
        elif missing := [*_missing_claims(pod, groups.get(_group_key(pod)), objects.claims)]:
            yield f"pod {pod.metadata.name} waits for claims that were not generated: {missing}"
        elif key is None:
            decision = engine.decide(pod)
            if isinstance(decision, Placement):
                yield f"pod {pod.metadata.name} waits and could run on {decision.node}"
    yield from _stuck_gangs(engine, objects, gangs, now)


def _stuck_gangs(
    engine: Engine, objects: StoredObjects, gangs: dict[PodGroupKey, list[Pod]], now: datetime
) -> Iterator[str]:
    cluster, numbers = engine.cluster, count()
    for group in objects.groups:
        if group.metadata.deletion_timestamp is None:
            cluster.group_changed(None, group)
    requests = GroupRequests(cluster, GATES)
    cycle = GangCycle(cluster, Cycle(cluster, GATES), GATES, lambda: f"share-{next(numbers)}")
    for key, members in gangs.items():
        waiting = tuple(pod for pod in members if not pod.spec.node_name and not pod.is_terminating)
        request = requests.request(key, members, waiting)
        if not isinstance(request, GangRequest) or not request.pods:
            continue
        decision = cycle.decide(request, now)
        if isinstance(decision, GangPlacement) and decision.placed:
            places = ", ".join(f"{pod.metadata.name} on {place.node}" for pod, place in decision.placed)
            yield f"{key.name} waits and could run: {places}"
            for pod, place in reversed(decision.placed):
                cluster.forget(pod, tuple(place.allocations))


def _group_key(pod: Pod) -> ObjectKey:
    return ObjectKey(pod.metadata.namespace, group_name(pod))


def _missing_claims(pod: Pod, group: PodGroup | None, claims: Iterable[ResourceClaim]) -> Iterator[str]:
    made = {status.name for status in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        if not entry.resource_claim_template_name or entry.name in made:
            continue
        if group is None or not is_shared(entry, group) or not _is_being_deleted(entry.name, group, claims):
            yield entry.name


def _is_being_deleted(entry: str, group: PodGroup, claims: Iterable[ResourceClaim]) -> bool:
    """True if a user deleted the group's claim. The group holds it, and gets no other, as long as it exists."""
    recorded = {each.resource_claim_name for each in group.status.resource_claim_statuses if each.name == entry}
    return any(
        claim.metadata.name in recorded
        and is_made_for(claim, group)
        and claim.metadata.deletion_timestamp is not None
        and group_reference(group) in claim.status.reserved_for
        for claim in claims
    )


def _cluster_objects(stored: StoredObjects) -> ClusterObjects:
    objects = ClusterObjects(GATES)
    for item in (*stored.nodes, *stored.slices, *stored.classes, *stored.rules, *stored.claims, *stored.pods):
        objects.add(item)
    return objects
