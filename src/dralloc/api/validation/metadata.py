"""Metadata, which all kinds have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from dralloc.api.meta_v1 import ObjectMeta, OwnerReference
from dralloc.api.validation.formats import validate_dns_label, validate_format
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, required, too_long
from dralloc.primitives.names import length_in_bytes

ANNOTATIONS_SIZE_MAX: Final = 256 * 1024
STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")

METADATA: Final = FieldPath.of("metadata")

# Kinds that must not own objects, because they are ephemeral.
BANNED_OWNERS: Final = frozenset({("v1", "Event")})

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
        yield invalid(METADATA.child("generation"), metadata.generation, "must be greater than or equal to 0")
    if metadata.finalizers:
        yield from _validate_finalizers(metadata.finalizers)
    yield from _validate_attachments(metadata)


def validate_metadata_update(new: ObjectMeta, old: ObjectMeta) -> Iterator[FieldError]:
    """Immutable metadata. The server-managed fields are already restored."""
    if old.deletion_timestamp is not None and (added := set(new.finalizers) - set(old.finalizers)):
        yield forbidden(
            METADATA.child("finalizers"),
            f"no finalizer can be added while the object is being deleted: {sorted(added)}",
        )
    if new.generation < old.generation:
        yield invalid(METADATA.child("generation"), new.generation, "must not be decremented")
    for field in ("name", "namespace", "uid"):
        if getattr(new, field) != getattr(old, field):
            yield invalid(METADATA.child(field), getattr(new, field), "field is immutable")
    yield from _validate_attachments(new)


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
    controllers = 0
    for reference in references:
        for field, value in (
            ("apiVersion", reference.api_version.rpartition("/")[2]),
            ("kind", reference.kind),
            ("name", reference.name),
            ("uid", reference.uid),
        ):
            if not value:
                yield invalid(path.child(field), value, "must not be empty")
        if (reference.api_version, reference.kind) in BANNED_OWNERS:
            yield invalid(path, reference.kind, "an object of this kind cannot be an owner")
        controllers += reference.controller is True
        if reference.controller and controllers > 1:
            yield invalid(path, reference.name, "only one reference can have controller set to true")


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
