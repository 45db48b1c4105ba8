"""What should have gone on by itself: pods that wait although they could run, once everything has come to rest.

Whether a pod could be placed is asked of the scheduler's own decision, on nothing but what the API shows: a pod that it would
place and that still waits was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from dralloc.api.pod_v1 import Pod
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import Placement
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.simulator.checkers import StoredObjects


def forgotten(objects: StoredObjects, now: datetime) -> Iterator[str]:
    """Pods that wait for nothing."""
    cycle = Cycle(_cluster(objects), FeatureGates.defaults())
    for pod in objects.pods:
        if pod.is_finished:
            continue
        if pod.is_terminating:
            yield f"pod {pod.metadata.name} is deleted and still there"
        elif pod.spec.node_name:
            if pod.status.phase != "Running":
                yield f"pod {pod.metadata.name} has node {pod.spec.node_name} and does not run"
        elif missing := _claims_not_made(pod):
            yield f"pod {pod.metadata.name} waits for claims that nobody made: {missing}"
        else:
            decision = cycle.decide(pod, now)
            if isinstance(decision, Placement):
                yield f"pod {pod.metadata.name} waits and could run on {decision.node}"


def _claims_not_made(pod: Pod) -> list[str]:
    made = {status.name for status in pod.status.resource_claim_statuses}
    return [
        entry.name
        for entry in pod.spec.resource_claims
        if entry.resource_claim_template_name and entry.name not in made
    ]


def _cluster(objects: StoredObjects) -> ClusterState:
    cluster = ClusterState()
    for device_class in objects.classes:
        cluster.class_changed(None, device_class)
    for node in objects.nodes:
        cluster.node_changed(None, node)
    for published in objects.slices:
        cluster.slice_changed(None, published)
    for rule in objects.rules:
        cluster.rule_changed(None, rule)
    for claim in objects.claims:
        cluster.claim_changed(None, claim)
    for pod in objects.pods:
        cluster.pod_changed(None, pod)
    return cluster
