"""Changes of cluster objects as data, so that scripts can apply them: what to set where, what to delete, what to enable.

`apply_changes` applies them to cluster objects. A proposal is tried with it before it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as change
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from dralloc.answers.cluster_objects import ClusterObjects, ObjectKey
from dralloc.devices.deallocation import DEALLOCATED
from dralloc.kube.codec import DecodeError, decode, encode
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.registry import find_kind
from dralloc.kube.resource_v1 import (
    GROUP,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dralloc.kube.strategy import AdmissionContext
from dralloc.primitives.features import UnknownGate

_TYPES: Final[Mapping[str, type[ApiObject]]] = {
    each.__name__: each for each in (Pod, ResourceClaim, ResourceClaimTemplate, ResourceSlice, DeviceClass)
}

# Validation does not depend on the time.
_NO_TIME: Final = datetime.fromtimestamp(0, UTC)


class _ObjectChange(Struct, frozen=True, kw_only=True, tag_field="action", rename="camel", omit_defaults=True):
    api_version: str
    kind: str
    namespace: str = ""
    name: str


class SetField(_ObjectChange, frozen=True, kw_only=True, tag="set"):
    """Sets the value at a JSON pointer (RFC 6901); `-` as the last step appends to a list.

    Without `before` there was no value. Without `after` the member or item is removed. The spec of a claim or of a template
    is immutable in a cluster: the object is deleted and created again with the new value.
    """

    path: str
    before: Any = field(default=UNSET, name="from")
    after: Any = field(default=UNSET, name="to")


class DeleteObject(_ObjectChange, frozen=True, kw_only=True, tag="delete"):
    pass


class ReleaseClaim(_ObjectChange, frozen=True, kw_only=True, tag="release"):
    """The claim's devices become free: it is deallocated once no pod uses it."""


class EnableFeatureGate(Struct, frozen=True, kw_only=True, tag_field="action", tag="enableFeatureGate", rename="camel"):
    feature_gate: str


ObjectChange = SetField | DeleteObject | ReleaseClaim | EnableFeatureGate
# An object before and after changes; None where it does not exist.
Replacement = tuple[ApiObject | None, ApiObject | None]


class InapplicableChange(ValueError):
    """The changes cannot be applied: an object or a value is missing, or the API refuses the result."""


def apply_changes(
    objects: ClusterObjects, changes: Iterable[ObjectChange]
) -> tuple[ClusterObjects, tuple[Replacement, ...]]:
    """A copy of the objects with the changes applied, and what was replaced. Raises InapplicableChange."""
    gates, bodies = objects.gates, dict[tuple[type[ApiObject], ObjectKey], Any]()
    for each in changes:
        if isinstance(each, EnableFeatureGate):
            try:
                gates = gates.override({each.feature_gate: True})
            except UnknownGate as error:
                raise InapplicableChange(str(error)) from None
            continue
        place = _TYPES[each.kind], (each.namespace, each.name)
        if place not in bodies:
            bodies[place] = plain(_find(objects, *place))
        bodies[place] = _changed(bodies[place], each)
    admission = AdmissionContext(gates=gates, now=_NO_TIME)
    replacements = tuple(_replacement(_find(objects, *place), body, admission) for place, body in bodies.items())
    return _with(change(objects, gates=gates, notes=[]), replacements), replacements


def _find(objects: ClusterObjects, kind: type[ApiObject], key: ObjectKey) -> ApiObject:
    found = objects.all(kind).get(key)
    if found is None:
        raise InapplicableChange(f"no {kind.__name__} {'/'.join(filter(None, key))}")
    return found


def _changed(body: Any, each: SetField | DeleteObject | ReleaseClaim) -> Any:
    match each:
        case DeleteObject():
            return None
        case ReleaseClaim():
            status = {name: value for name, value in body.get("status", {}).items() if name not in DEALLOCATED}
            return {**body, "status": status}
        case SetField(path=path, after=after):
            return _put(body, [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]], after)


def _put(value: Any, steps: Sequence[str], after: Any) -> Any:
    """The value with another one at the steps; without it if `after` is unset."""
    step, *rest = steps
    if isinstance(value, list):
        position = len(value) if step == "-" else int(step)
        old = value[position] if position < len(value) else None
        new = _put(old, rest, after) if rest else after
        return [*value[:position], *(() if new is UNSET else (new,)), *value[position + 1 :]]
    if not isinstance(value, dict):
        raise InapplicableChange(f"there is nothing that has {step}")
    new = _put(value.get(step), rest, after) if rest else after
    others = {name: member for name, member in value.items() if name != step}
    return others if isinstance(new, UnsetType) else {**others, step: new}


def _replacement(old: ApiObject, body: Any, admission: AdmissionContext) -> Replacement:
    if body is None:
        return old, None
    try:
        new = decode(msgspec.json.encode(body), type(old))
    except DecodeError as error:
        raise InapplicableChange(str(error)) from None
    # Objects of files may have errors of their own.
    if faults := _faults(new, admission) - _faults(old, admission):
        raise InapplicableChange("; ".join(sorted(faults)))
    return old, new


def _faults(obj: ApiObject, admission: AdmissionContext) -> set[str]:
    kind = find_kind(_api_version(type(obj)), type(obj).__name__)
    assert kind is not None, "changes are of known kinds"
    return set(map(str, kind.strategy(admission).validate_create(obj)))


def _with(objects: ClusterObjects, replacements: Iterable[Replacement]) -> ClusterObjects:
    filed = dict(objects.objects)
    for old, new in replacements:
        some = old or new
        assert some is not None, "an object exists before or after"
        filed[type(some)] = dict(filed.get(type(some), {}))
    changed = change(objects, objects=filed)
    for old, new in replacements:
        if new is not None:
            changed.add(new)
        elif old is not None:
            del filed[type(old)][old.metadata.namespace, old.metadata.name]
    return changed


# --- Making changes -------------------------------------------------------------------------------------------------------


def plain(obj: ApiObject) -> Any:
    """The object as JSON has it."""
    return msgspec.json.decode(encode(obj))


class ObjectEditor:
    """Makes changes of one object. Steps are the names and positions from the object's root to a value."""

    def __init__(self, obj: ApiObject) -> None:
        self.body = plain(obj)
        self._named = {
            "api_version": _api_version(type(obj)),
            "kind": type(obj).__name__,
            "namespace": obj.metadata.namespace,
            "name": obj.metadata.name,
        }

    def set(self, value: Any, *steps: str | int) -> SetField:
        """Sets a value, with the objects and lists around it that do not exist."""
        body = self.body
        for number, step in enumerate(steps):
            found = _member(body, step)
            if found is UNSET:
                for missing in reversed(steps[number + 1 :]):
                    value = [value] if isinstance(missing, int) else {missing: value}
                shown = (*steps[:number], "-" if isinstance(step, int) else step)
                return SetField(**self._named, path=_pointer(shown), after=value)
            body = found
        return SetField(**self._named, path=_pointer(steps), before=body, after=value)

    def remove(self, *steps: str | int) -> SetField:
        """Removes a value that exists."""
        body = self.body
        for step in steps:
            body = _member(body, step)
        return SetField(**self._named, path=_pointer(steps), before=body)

    def delete(self) -> DeleteObject:
        return DeleteObject(**self._named)

    def release(self) -> ReleaseClaim:
        return ReleaseClaim(**self._named)


def _api_version(kind: type[ApiObject]) -> str:
    return "v1" if kind is Pod else f"{GROUP}/v1"


def _member(body: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return body[step] if step < len(body) else UNSET
    return body.get(step, UNSET)


def _pointer(steps: Iterable[str | int]) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
