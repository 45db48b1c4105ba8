"""Which pods are typical of a cluster that objects describe: those that exist and have not ended."""

from __future__ import annotations

from dralloc.api.pod_claims import claims_of
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
from dralloc.scheduler.decide.typical_manifests import occurrences
from dralloc.scheduler.decide.typical_pods import TypicalPods
from dralloc.whatif.cluster_objects import ClusterObjects
from dralloc.whatif.template_claims import MissingTemplate, TemplateClaims


def typical_pods_of(objects: ClusterObjects, *, are_counted: bool = False) -> TypicalPods:
    """With `are_counted`, the objects were made for this, and annotations say how often each pod occurs. Elsewhere any user can
    write them.
    """
    features = objects.features.of_scheduler()
    classes = {name: item for (_, name), item in objects.all(DeviceClass).items()}
    templates, typical = TemplateClaims(objects), TypicalPods()
    for pod in objects.all(Pod).values():
        if pod.is_finished or not pod.spec.resource_claims:
            continue
        try:
            completed, expected = templates.complete(pod)
        except MissingTemplate:
            continue
        made = {claim.metadata.name: claim for claim in expected}
        known = (
            made.get(use.claim) or objects.all(ResourceClaim).get((pod.metadata.namespace, use.claim))
            for use in claims_of(completed)
        )
        claims = [claim for claim in known if claim is not None]
        number = occurrences(pod.metadata.annotations) if are_counted else 1
        typical.count(pod, claims, classes, features, number)
    return typical
