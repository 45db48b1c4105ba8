"""The fragmentation of a cluster as objects describe it: stranded devices for the pods that it has (`scheduler/report/fragmentation`)."""

from __future__ import annotations

from dralloc.scheduler.report.fragmentation import Fragmentation
from dralloc.whatif.assumed_scheduler import typical_pods_of
from dralloc.whatif.cluster_objects import ClusterObjects
from dralloc.whatif.scheduler_state import state_of


def fragmentation_of(objects: ClusterObjects) -> Fragmentation:
    """Typical are the pods that exist and have not ended."""
    features = objects.features.of_scheduler()
    return Fragmentation(state_of(objects, objects.nodes), features, typical_pods_of(objects).top())
