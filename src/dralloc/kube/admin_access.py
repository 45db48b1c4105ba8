"""Admin access to devices that are in use by other claims; only allowed in namespaces that an administrator has
labelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dralloc.kube.resource_v1 import ResourceClaimSpec, ResourceClaimStatus
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, internal

ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"

_REQUESTS: Final = FieldPath.of("spec", "devices", "requests")
_RESULTS: Final = FieldPath.of("status", "allocation", "devices", "results")


def validate_admin_access(spec: ResourceClaimSpec, namespace_labels: Mapping[str, str] | None) -> Iterator[FieldError]:
    """Yields at most one error, for the first request with admin access; its path is that of a claim even in a
    template.
    """
    for position, request in enumerate(spec.devices.requests or ()):
        if request.exactly is not None and request.exactly.admin_access:
            yield from _validate_namespace(namespace_labels, _REQUESTS.index(position).child("adminAccess"))
            return


def validate_admin_access_given(
    new: ResourceClaimStatus, old: ResourceClaimStatus, namespace_labels: Mapping[str, str] | None
) -> Iterator[FieldError]:
    """Like `validate_admin_access`, but a claim that was allocated with admin access keeps it."""
    if any(result.admin_access for result in (old.allocation.devices.results if old.allocation else ())):
        return
    for position, result in enumerate(new.allocation.devices.results if new.allocation else ()):
        if result.admin_access:
            yield from _validate_namespace(namespace_labels, _RESULTS.index(position).child("adminAccess"))
            return


def _validate_namespace(labels: Mapping[str, str] | None, path: FieldPath) -> Iterator[FieldError]:
    if labels is None:
        yield internal(path, "the namespace could not be read")
    elif labels.get(ADMIN_ACCESS_LABEL) != "true":
        yield forbidden(path, f"the namespace must have the label {ADMIN_ACCESS_LABEL}: true")
