"""Metadata, which all kinds have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

from dralloc.kube.meta_v1 import ObjectMeta, OwnerReference
from dralloc.kube.validation.formats import validate_dns_label, validate_format
from dralloc.primitives import names
from dralloc.primitives.field_errors import (
    FieldError,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from dralloc.primitives.names import length_in_bytes

ANNOTATIONS_SIZE_MAX: Final = 256 * 1024
STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")

METADATA: Final = FieldPath.of("metadata")

# Kinds that must not own objects, because they are ephemeral.
BANNED_OWNERS: Final = frozenset({("v1", "Event"), ("/v1", "Event")})

MANAGED_OPERATIONS: Final = ("Apply", "Update")
MANAGER_LENGTH_MAX: Final = 128
SUBRESOURCE_LENGTH_MAX: Final = 256

NOT_NEGATIVE: Final = "must be greater than or equal to 0"

# Metadata that no update changes, in Kubernetes' spelling and as attributes.
_IMMUTABLE: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_identity: Final = attrgetter(
    "name", "namespace", "uid", "creation_timestamp", "deletion_timestamp", "deletion_grace_period_seconds"
)

# Template metadata that has no meaning in the claims made from it, in Kubernetes' spelling.
_NOT_IN_TEMPLATES: Final = {
    "name": "name",
    "generate_name": "generateName",
    "namespace": "namespace",
    "self_link": "selfLink",
    "uid": "uID",
    "resource_version": "resourceVersion",
    "generation": "generation",
    "creation_timestamp": "creationTimestamp",
    "deletion_timestamp": "deletionTimestamp",
    "deletion_grace_period_seconds": "deletionGracePeriodSeconds",
    "owner_references": "ownerReferences",
    "finalizers": "finalizers",
    "managed_fields": "managedFields",
}


def validate_metadata(
    metadata: ObjectMeta,
    *,
    namespaced: bool,
    name_faults: Callable[[str], tuple[str, ...]] = names.dns_subdomain,
    checks_generate_name: bool = True,
) -> Iterator[FieldError]:
    """The rules for a new object, whose name is already generated."""
    if metadata.generate_name and checks_generate_name:
        for fault in name_faults(_as_if_completed(metadata.generate_name)):
            yield invalid(METADATA.child("generateName"), metadata.generate_name, fault)
    if not metadata.name:
        yield required(METADATA.child("name"), "name or generateName is required")
    else:
        yield from validate_format(metadata.name, METADATA.child("name"), name_faults)
    yield from _validate_namespace(metadata.namespace, namespaced=namespaced)
    if metadata.generation < 0:
        yield invalid(METADATA.child("generation"), metadata.generation, NOT_NEGATIVE)
    if metadata.finalizers:
        yield from _validate_finalizers(metadata.finalizers)
    yield from _validate_attachments(metadata)


def validate_metadata_update(new: ObjectMeta, old: ObjectMeta) -> Iterator[FieldError]:
    """The rules for the metadata of every updated object. The server-managed fields are already restored.

    The name was valid when the object was created; here it only has to be usable in a URL.
    """
    if new.generate_name:
        for fault in names.path_segment_prefix(new.generate_name):
            yield invalid(METADATA.child("generateName"), new.generate_name, fault)
    if new.generation < 0:
        yield invalid(METADATA.child("generation"), new.generation, NOT_NEGATIVE)
    if old.deletion_timestamp is not None and (added := set(new.finalizers) - set(old.finalizers)):
        yield forbidden(
            METADATA.child("finalizers"),
            f"no finalizer can be added while the object is being deleted: {sorted(added)}",
        )
    if new.generation < old.generation:
        yield invalid(METADATA.child("generation"), new.generation, "must not be decremented")
    if new.name != old.name:
        yield from validate_format(new.name, METADATA.child("name"), names.path_segment)
    if new.namespace != old.namespace and old.namespace:
        yield from validate_dns_label(new.namespace, METADATA.child("namespace"))
    if _identity(new) != _identity(old):
        for name, value, before in zip(_IMMUTABLE, _identity(new), _identity(old), strict=True):
            if value != before:
                yield invalid(METADATA.child(name), value, "field is immutable")
    if new.finalizers:
        yield from _validate_finalizers(new.finalizers)
    yield from _validate_attachments(new)


def validate_managed_fields(entries: tuple[dict[str, Any], ...]) -> Iterator[FieldError]:
    """The rules for `managedFields`. A server replaces malformed entries before it validates."""
    for position, entry in enumerate(entries):
        path = METADATA.child("managedFields").index(position)
        operation, manager = entry.get("operation") or "", entry.get("manager") or ""
        if not operation:
            yield required(path.child("operation"))
        elif operation not in MANAGED_OPERATIONS:
            yield not_supported(path.child("operation"), operation, MANAGED_OPERATIONS)
        if entry.get("fieldsType") not in (None, "", "FieldsV1"):
            yield invalid(path.child("fieldsType"), entry["fieldsType"], "must be FieldsV1")
        if length_in_bytes(manager) > MANAGER_LENGTH_MAX:
            yield too_long(path.child("manager"), MANAGER_LENGTH_MAX)
        for offset, character in enumerate(manager):
            if not character.isprintable():
                yield invalid(path.child("manager"), manager, f"has a character that cannot be printed at {offset}")
        if length_in_bytes(entry.get("subresource") or "") > SUBRESOURCE_LENGTH_MAX:
            yield too_long(path.child("subresource"), SUBRESOURCE_LENGTH_MAX)


def validate_template_metadata(metadata: ObjectMeta, path: FieldPath) -> Iterator[FieldError]:
    """Only labels and annotations are allowed."""
    yield from validate_annotations(metadata.annotations, path.child("annotations"))
    yield from validate_labels(metadata.labels, path.child("labels"))
    for field, name in _NOT_IN_TEMPLATES.items():
        if getattr(metadata, field):
            yield forbidden(path.child(name), "cannot be set in a template")


def validate_labels(labels: Mapping[str, str], path: FieldPath) -> Iterator[FieldError]:
    for key, value in labels.items():
        yield from validate_format(key, path, names.label_key)
        yield from validate_format(value, path, names.label_value)


def validate_annotations(annotations: Mapping[str, str], path: FieldPath) -> Iterator[FieldError]:
    size = 0
    for key, value in annotations.items():
        size += length_in_bytes(key) + length_in_bytes(value)
        for fault in names.label_key(key.lower()):
            yield invalid(path, key, fault)
    if size > ANNOTATIONS_SIZE_MAX:
        yield too_long(path, ANNOTATIONS_SIZE_MAX)


def _as_if_completed(prefix: str) -> str:
    # The prefix may end in '-', because the generated name continues after it.
    return f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _validate_attachments(metadata: ObjectMeta) -> Iterator[FieldError]:
    if metadata.labels:
        yield from validate_labels(metadata.labels, METADATA.child("labels"))
    if metadata.annotations:
        yield from validate_annotations(metadata.annotations, METADATA.child("annotations"))
    if metadata.owner_references:
        yield from _validate_owner_references(metadata.owner_references, METADATA.child("ownerReferences"))


def _validate_namespace(namespace: str, *, namespaced: bool) -> Iterator[FieldError]:
    path = METADATA.child("namespace")
    if not namespaced:
        if namespace:
            yield forbidden(path, "not allowed on this type")
    elif not namespace:
        yield required(path)
    else:
        yield from validate_dns_label(namespace, path)


def _validate_owner_references(references: tuple[OwnerReference, ...], path: FieldPath) -> Iterator[FieldError]:
    controller = ""
    for position, reference in enumerate(references):
        yield from _validate_owner_reference(reference, path.index(position))
        name = f"{reference.kind}/{reference.name}"
        if reference.controller and controller:
            yield invalid(
                path,
                references,
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for {controller} and {name}',
            )
        elif reference.controller:
            controller = name


def _validate_owner_reference(reference: OwnerReference, path: FieldPath) -> Iterator[FieldError]:
    api_version = reference.api_version
    if api_version and (api_version.count("/") > 1 or api_version.endswith("/")):
        yield invalid(path.child("apiVersion"), api_version, "must be <group>/<version> or <version>")
    for field, value in (
        ("apiVersion", api_version),
        ("kind", reference.kind),
        ("name", reference.name),
        ("uid", reference.uid),
    ):
        if not value:
            yield required(path.child(field))
    if (api_version, reference.kind) in BANNED_OWNERS:
        yield invalid(path, reference.kind, "an object of this kind cannot be an owner")


def _validate_finalizers(finalizers: tuple[str, ...]) -> Iterator[FieldError]:
    path = METADATA.child("finalizers")
    for position, finalizer in enumerate(finalizers):
        yield from validate_format(finalizer, path, names.label_key)
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            yield invalid(
                path.index(position), finalizer, "must have a domain before its name, like 'example.com/keep'"
            )
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        yield invalid(path, list(finalizers), "orphan and foregroundDeletion exclude each other")
