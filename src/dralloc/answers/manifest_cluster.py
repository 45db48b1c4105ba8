"""Cluster objects from manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects, decode_object, object_type_of
from dralloc.answers.reduced_objects import without_writes
from dralloc.kube.admission import generated_name
from dralloc.kube.codec import DecodeError
from dralloc.kube.core_v1 import ConfigMap
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import find_in_other_versions, find_kind
from dralloc.kube.resource_v1 import GROUP
from dralloc.primitives.names import suffix
from dralloc.scheduler.published_configuration import SCHEDULER_NAME


class UnusableManifest(ValueError):
    """An object of the manifests cannot be used; the message says which and why."""


class ManifestObject(Protocol):
    """An object of a file, as JSON."""

    @property
    def file(self) -> str: ...
    @property
    def api_version(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def body(self) -> bytes: ...


def add_manifests(
    objects: ClusterObjects,
    manifests: Iterable[ManifestObject],
    kinds: Collection[type[ApiObject]] | None = None,
    *,
    with_writes: bool = False,
) -> None:
    """Adds the objects that answers depend on, of these kinds or of all. Raises UnusableManifest.

    `with_writes`: with the record of their writes.
    """
    unknown: set[tuple[str, str, str]] = set()
    serials: Counter[str] = Counter()
    for manifest in manifests:
        if kinds is not None and _type_of(manifest) not in kinds:
            continue
        if (obj := _object(manifest, objects.namespace)) is not None:
            obj = obj if obj.metadata.name else _with_generated_name(obj, objects, serials)
            if not isinstance(obj, ConfigMap) or SCHEDULER_NAME in obj.data:
                objects.add(obj if with_writes else without_writes(obj))
        elif manifest.api_version.startswith(f"{GROUP}/"):
            unknown.add((manifest.file, manifest.kind, manifest.api_version))
    objects.notes += [f"{file}: ignored unknown kind {kind} of {version}" for file, kind, version in sorted(unknown)]


def _type_of(manifest: ManifestObject) -> type[ApiObject] | None:
    kind = find_in_other_versions(manifest.api_version, manifest.kind)
    return None if kind is None else object_type_of(kind)


def _object(manifest: ManifestObject, namespace: str) -> ApiObject | None:
    if _type_of(manifest) is None:
        return None
    kind = find_kind(manifest.api_version, manifest.kind)
    if kind is None:
        raise UnusableManifest(why_unreadable(manifest))
    try:
        obj = decode_object(kind, manifest.api_version.rpartition("/")[2], manifest.body)
    except DecodeError as error:
        raise UnusableManifest(
            f"{manifest.file}: {error}; for the position run: dralloc validate {manifest.file}"
        ) from None
    if not obj.metadata.name and not obj.metadata.generate_name:
        raise UnusableManifest(f"{manifest.file}: {kind.kind} without metadata.name or metadata.generateName")
    if kind.namespaced and not obj.metadata.namespace:
        obj = replace(obj, metadata=replace(obj.metadata, namespace=namespace))
    return obj


def _with_generated_name(obj: ApiObject, objects: ClusterObjects, serials: Counter[str]) -> ApiObject:
    """The object with a name like one that a server generates, the same in every run."""
    metadata = obj.metadata
    taken = objects.objects.get(type(obj), {})
    while True:
        name = generated_name(metadata.generate_name, suffix(metadata.generate_name, serials[metadata.generate_name]))
        serials[metadata.generate_name] += 1
        if (metadata.namespace, name) not in taken:
            return replace(obj, metadata=replace(metadata, name=name))


def why_unreadable(manifest: ManifestObject) -> str:
    """Why an object of an unknown version cannot be left out: an answer without it would be wrong."""
    if not manifest.api_version:
        return f"{manifest.file}: {manifest.kind} without apiVersion"
    known = find_in_other_versions(manifest.api_version, manifest.kind)
    reason = known.lacks(manifest.api_version) if known else f"unknown kind of {manifest.api_version}"
    metadata = msgspec.json.decode(manifest.body).get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{manifest.file}: {manifest.kind} {name}: {reason}"
