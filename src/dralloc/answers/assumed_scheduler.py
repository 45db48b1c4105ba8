"""The configuration of the scheduler whose decisions are predicted: as the user states it, or as the scheduler has published it.

Where typical pods are neither stated nor published, they are those of the cluster, as for a scheduler that starts now.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.manifest_cluster import UnusableManifest, add_manifests
from dralloc.answers.template_claims import MissingTemplate, TemplateClaims
from dralloc.kube.core_v1 import ConfigMap
from dralloc.kube.pod_claims import claims_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.decoders import UNREADABLE
from dralloc.scheduler.configuration import BadConfiguration, SchedulerConfiguration, configuration_of, stated_in
from dralloc.scheduler.decide.typical_pods import CountedPod, TypicalPods, occurrences
from dralloc.scheduler.published_configuration import CONFIGURATION, SCHEDULER_NAME, TYPICAL_PODS, published_names

_DEFAULT: Final = SchedulerConfiguration()


def scheduler_of(objects: ClusterObjects, names: Collection[str]) -> SchedulerConfiguration:
    """`names` are the schedulerNames of the scheduler's pods. What is unusable is noted, and the default taken."""
    found = objects.stated.configuration or _published(objects, names) or _DEFAULT
    strategies = found.strategies
    if objects.stated.strategy is not None:
        strategies = replace(strategies, default=objects.stated.strategy)
    reads_typical = any(each.reads_typical_pods for each in (strategies.default, *strategies.allowed.values()))
    if reads_typical and strategies.typical is None:
        strategies = replace(strategies, typical=typical_pods_of(objects).counted())
    return SchedulerConfiguration(found.class_settings, strategies)


def _published(objects: ClusterObjects, names: Collection[str]) -> SchedulerConfiguration | None:
    known = {each.data.get(SCHEDULER_NAME): each for each in objects.all(ConfigMap).values()}
    for name in published_names(names):
        if name not in known:
            continue
        try:
            return _read(known[name], objects)
        except (*UNREADABLE, BadConfiguration, UnusableManifest) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            objects.notes.append(
                f"the configuration of scheduler {name} cannot be read: {why}; answers assume the default"
            )
    return None


def _read(published: ConfigMap, objects: ClusterObjects) -> SchedulerConfiguration:
    stated = stated_in(msgspec.json.decode(published.data.get(CONFIGURATION, "")))
    text = published.data.get(TYPICAL_PODS)
    return configuration_of(stated, None if text is None else _typical(text, objects))


@dataclass(frozen=True, slots=True)
class _Manifest:
    file: str
    api_version: str
    kind: str
    body: bytes


class _ManifestList(msgspec.Struct):
    items: list[dict[str, Any]] = []


def _typical(text: str, objects: ClusterObjects) -> tuple[CountedPod, ...]:
    """The pods of the manifests, with the classes of the cluster."""
    items = msgspec.json.decode(text, type=_ManifestList).items
    manifests = [
        _Manifest(TYPICAL_PODS, str(each.get("apiVersion")), str(each.get("kind")), msgspec.json.encode(each))
        for each in items
    ]
    given = ClusterObjects(objects.gates)
    given.objects[DeviceClass] = dict(objects.all(DeviceClass))
    add_manifests(given, manifests)
    return typical_pods_of(given, are_counted=True).all()


# --- Typical pods ---------------------------------------------------------------------------------------------------
# Which pods are typical of a cluster that objects describe: those that exist and have not ended.


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
