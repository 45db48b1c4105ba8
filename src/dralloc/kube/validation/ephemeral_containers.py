"""Ephemeral containers: they are added to a pod that exists, and never changed or removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralloc.kube.validation import formats
from dralloc.primitives.field_errors import FieldError, FieldPath, duplicate, forbidden, not_found, required

PATH: Final = FieldPath.of("spec", "ephemeralContainers")
# What makes no sense for a container that runs once, beside others, without a guarantee.
_NOT_ALLOWED: Final = (
    *("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources", "resizePolicy"),
    *("restartPolicy", "restartPolicyRules"),
)

Tree = Mapping[str, Any]


def validate_ephemeral_containers(new: Tree, old: Tree) -> Iterator[FieldError]:
    """The errors of a pod's new spec, given the stored one."""
    containers = _objects(new.get("ephemeralContainers"))
    by_name = {container.get("name"): container for container in containers}
    for before in _objects(old.get("ephemeralContainers")):
        if (after := by_name.get(before.get("name"))) is None:
            yield forbidden(PATH, f"existing ephemeral containers {before.get('name')!r} may not be removed")
        elif after != before:
            yield forbidden(PATH, f"existing ephemeral containers {before.get('name')!r} may not be changed")
    regular = {each.get("name") for name in ("initContainers", "containers") for each in _objects(new.get(name))}
    seen = set(regular)
    for position, container in enumerate(containers):
        yield from _validate(container, regular, seen, PATH.index(position))
        seen.add(container.get("name"))


def _validate(container: Tree, regular: set[Any], seen: set[Any], path: FieldPath) -> Iterator[FieldError]:
    name = str(container.get("name") or "")
    yield from formats.validate_required_label(name, path.child("name"))
    if name and name in seen:
        yield duplicate(path.child("name"), name)
    if not container.get("image"):
        yield required(path.child("image"))
    if (target := container.get("targetContainerName")) and target not in regular:
        yield not_found(path.child("targetContainerName"), target)
    for member in _NOT_ALLOWED:
        if container.get(member):
            yield forbidden(path.child(member), "cannot be set for an Ephemeral Container")


def _objects(value: Any) -> list[Tree]:
    return [item for item in value or () if isinstance(item, dict)]
