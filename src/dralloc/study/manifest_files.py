"""Kubernetes manifests as a trace or as a cluster.

A trace has the pods of the manifests and those of their Jobs and Deployments, in the order of their creation times. All of them are
to be placed: nodes and devices that they have already are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.manifest_cluster import UnusableManifest, add_manifests
from dralloc.answers.template_claims import MissingTemplate, TemplateClaims
from dralloc.answers.workload_pods import add_workload_pods
from dralloc.kube.batch_v1 import Job
from dralloc.kube.manifests import read_manifest
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod, PodStatus
from dralloc.kube.resource_v1 import ResourceClaim, ResourceClaimStatus
from dralloc.kube.timestamps import BadTimestamp, parse_timestamp
from dralloc.primitives.features import FeatureGates
from dralloc.study.comparison import BadInput
from dralloc.study.trace import Arrival, ManifestPod

# How long a pod runs once it is placed, in seconds.
DURATION_ANNOTATION: Final = "dralloc.io/duration-seconds"


@dataclass(frozen=True, slots=True)
class _FileObject:
    """An object of a file, as `add_manifests` reads it."""

    file: str
    api_version: str
    kind: str
    body: bytes


def manifest_objects(path: str | Path, content: bytes) -> ClusterObjects:
    """Raises BadInput."""
    manifest = read_manifest(content)
    if manifest.error is not None:
        position = manifest.error.position
        raise BadInput(f"{path}:{position.line}: column {position.column}: {manifest.error}")
    objects = ClusterObjects(FeatureGates.defaults(), place=str(path))
    documents = (_FileObject(str(path), each.api_version, each.kind, each.body) for each in manifest.documents)
    try:
        add_manifests(objects, documents)
    except UnusableManifest as error:
        raise BadInput(str(error)) from None
    return objects


def manifest_arrivals(path: str | Path, content: bytes) -> Iterator[Arrival]:
    """Raises BadInput."""
    objects = manifest_objects(path, content)
    jobs = {key: job.metadata.creation_timestamp for key, job in objects.all(Job).items()}
    try:
        add_workload_pods(objects)
        pods = list(objects.all(Pod).values())
        times = [_time_of(each, jobs) for each in pods]
        claims = _unallocated(objects)
        known = [time for time in times if time is not None]
        start = min(known, default=None)
        for pod, time in zip(pods, times, strict=True):
            at_s = (time - start).total_seconds() if time is not None and start is not None else 0.0
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            yield Arrival(name, _with_claims(pod, claims), at_s, _duration_of(pod, time))
    except (UnusableManifest, MissingTemplate, BadTimestamp) as error:
        raise BadInput(f"{path}: {error}") from None
    if not pods:
        raise BadInput(f"{path}: no pods, and no Jobs or Deployments that would have some")


def _time_of(pod: Pod, jobs: dict[tuple[str, str], str | None]) -> datetime | None:
    stated = pod.metadata.creation_timestamp
    owner = controller_of(pod.metadata)
    if not stated and owner is not None:
        stated = jobs.get((pod.metadata.namespace, owner.name))
    return parse_timestamp(stated) if stated else None


def _duration_of(pod: Pod, created: datetime | None) -> float | None:
    metadata = pod.metadata
    text = metadata.annotations.get(DURATION_ANNOTATION, "")
    if text:
        try:
            duration_s = float(text)
        except ValueError:
            duration_s = -1.0
        if not 0 <= duration_s < float("inf"):
            raise UnusableManifest(
                f"pod {metadata.namespace}/{metadata.name}: annotation {DURATION_ANNOTATION}: {text!r} is not a number of seconds"
            )
        return duration_s
    if metadata.deletion_timestamp and created is not None:
        return max(0.0, (parse_timestamp(metadata.deletion_timestamp) - created).total_seconds())
    return None


def _unallocated(objects: ClusterObjects) -> ClusterObjects:
    """The objects without claims that were made for pods, and without the allocations of the others."""
    kept = dict(objects.objects)
    claims: dict[tuple[str, str], ApiObject] = {}
    for key, claim in objects.all(ResourceClaim).items():
        owner = controller_of(claim.metadata)
        if owner is None or owner.kind != "Pod":
            claims[key] = replace(claim, metadata=_identified(claim.metadata), status=ResourceClaimStatus())
    kept[ResourceClaim] = claims
    return ClusterObjects(objects.gates, place=objects.place, objects=kept)


def _with_claims(pod: Pod, objects: ClusterObjects) -> ManifestPod:
    """Raises MissingTemplate."""
    metadata = _identified(replace(pod.metadata, deletion_timestamp=None))
    fresh = replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=""), status=PodStatus())
    completed, own = TemplateClaims(objects).complete(fresh)
    namespace, known = metadata.namespace, objects.all(ResourceClaim)
    named = [entry.resource_claim_name for entry in pod.spec.resource_claims if entry.resource_claim_name]
    if missing := [name for name in named if (namespace, name) not in known]:
        raise UnusableManifest(f"pod {namespace}/{metadata.name}: claim {namespace}/{missing[0]} does not exist")
    return ManifestPod(
        completed,
        tuple(replace(each, metadata=_identified(each.metadata)) for each in own),
        tuple(known[namespace, name] for name in named),
    )


def _identified(metadata: ObjectMeta) -> ObjectMeta:
    """With a UID and a revision, as a server would give them."""
    name = f"{metadata.namespace}/{metadata.name}"
    return replace(metadata, uid=metadata.uid or name, resource_version=metadata.resource_version or "1")
