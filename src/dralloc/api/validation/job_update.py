"""The immutable fields of a Job: its selector and its pod template.

The spec is compared as plain JSON, since a template has more fields than we model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralloc.api.validation.pod import SPEC
from dralloc.primitives.field_errors import FieldError, FieldPath, invalid

Spec = Mapping[str, Any]

FIXED: Final = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)


def validate_job_spec_update(new: Spec, old: Spec, *, has_pods: bool) -> Iterator[FieldError]:
    yield from _validate_completions(new, old)
    before, after = old.get("template") or {}, new.get("template") or {}
    if old.get("suspend") and not has_pods:
        before, after = _without_placement(before), _without_placement(after)
    if after != before:
        yield _immutable(SPEC.child("template"), new.get("template"))
    for field in FIXED:
        if new.get(field) != old.get(field):
            yield _immutable(SPEC.child(field), new.get(field))


def _validate_completions(new: Spec, old: Spec) -> Iterator[FieldError]:
    """The completions of an indexed job change only together with its parallelism."""
    path, completions = SPEC.child("completions"), new.get("completions")
    if completions == old.get("completions"):
        return
    if new.get("completionMode") != "Indexed":
        yield _immutable(path, completions)
    elif completions != new.get("parallelism"):
        yield invalid(path, completions, f"can only be modified in tandem with {SPEC.child('parallelism')}")


def _without_placement(template: Spec) -> dict[str, Any]:
    """Returns the template without the fields that queues may set while a job is suspended: node placement and resource
    requests.
    """
    metadata, spec = dict(template.get("metadata") or {}), dict(template.get("spec") or {})
    affinity = dict(spec.pop("affinity", None) or {})
    for members, names in (
        (metadata, ("labels", "annotations")),
        (affinity, ("nodeAffinity",)),
        (spec, ("nodeSelector", "tolerations", "schedulingGates")),
    ):
        for name in names:
            members.pop(name, None)
    for name in ("containers", "initContainers"):
        spec[name] = [_without_amounts(container) for container in spec.get(name) or ()]
    return {**template, "metadata": metadata, "spec": {**spec, "affinity": affinity}}


def _without_amounts(container: Any) -> Any:
    if not isinstance(container, Mapping):
        return container
    resources = {name: value for name, value in (container.get("resources") or {}).items() if name == "claims"}
    return {**container, "resources": resources}


def _immutable(path: FieldPath, value: object) -> FieldError:
    return invalid(path, value, "field is immutable")
