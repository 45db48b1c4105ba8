"""Liveness checks for an idle cluster: pods that wait although they could run.

The scheduler's own cycle decides on a fresh view of the API's objects. A pod that it would place
and that waits is stuck.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from dralloc.api.pod_v1 import Pod
from dralloc.scheduler.contract import Placement
from dralloc.simulator.idle_checks import StoredObjects
from dralloc.simulator.simulated_gates import GATES
from dralloc.whatif.cluster_objects import ClusterObjects
from dralloc.whatif.engine import Engine


def stuck_pods(objects: StoredObjects, now: datetime) -> Iterator[str]:
    """A message for each pod that waits for nothing."""
    engine = Engine(_cluster_objects(objects), now)
    for pod in objects.pods:
        if pod.is_finished:
            continue
        if pod.is_terminating:
            yield f"pod {pod.metadata.name} is deleted and still exists"
        elif pod.spec.node_name:
            if pod.status.phase != "Running":
                yield f"pod {pod.metadata.name} is bound to {pod.spec.node_name} and does not run"
        elif missing := _missing_claims(pod):
            yield f"pod {pod.metadata.name} waits for claims that were not generated: {missing}"
        else:
            decision = engine.decide(pod)
            if isinstance(decision, Placement):
                yield f"pod {pod.metadata.name} waits and could run on {decision.node}"


def _missing_claims(pod: Pod) -> list[str]:
    made = {status.name for status in pod.status.resource_claim_statuses}
    return [
        entry.name
        for entry in pod.spec.resource_claims
        if entry.resource_claim_template_name and entry.name not in made
    ]


def _cluster_objects(stored: StoredObjects) -> ClusterObjects:
    objects = ClusterObjects(GATES)
    for item in (*stored.nodes, *stored.slices, *stored.classes, *stored.rules, *stored.claims, *stored.pods):
        objects.add(item)
    return objects
