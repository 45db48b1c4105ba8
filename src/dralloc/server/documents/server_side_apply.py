"""Server-side apply, and the field ownership that every write records.

Each entry of `metadata.managedFields` lists the fields that one manager has set, by apply or by other writes ("update"). An apply
sets the applied fields and owns them. Fields that the applier owned alone and no longer applies are removed. A field that another
manager owns with another value is a conflict, unless the apply is forced.

Entries name the API version they were written in. Field sets of all versions of a kind agree (see `merge_rules`), so they are compared
without conversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import BadRequest, Cause, Conflict, ErrorDetails
from dralloc.server.documents.json_documents import Document, refuses_deep_nesting
from dralloc.server.documents.merge_rules import MergeRule
from dralloc.server.documents.owned_fields import (
    SELF,
    Changes,
    FieldSet,
    compare,
    difference,
    fields_of,
    intersection,
    merge,
    paths,
    remove,
    union,
    with_parents,
    without_below,
)

MANAGER_LENGTH_MAX: Final = 128
# Beyond this number, the oldest updating managers are merged, so that objects do not grow with their history.
UPDATING_MANAGERS_MAX: Final = 10
ANCIENT_CHANGES: Final = "ancient-changes"
# Owns the fields from before the first recorded manager.
BEFORE_FIRST_APPLY: Final = "before-first-apply"

# The manager of `kubectl apply --server-side`, and the annotation of `kubectl apply` without it.
KUBECTL: Final = "kubectl"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

# Fields that only the server owns.
_SERVERS_OWN: Final[FieldSet] = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        "f:creationTimestamp": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:name": {},
        "f:namespace": {},
        "f:resourceVersion": {},
        "f:selfLink": {},
        "f:uid": {},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorship:
    """The manager, API version, subresource and time of a write."""

    manager: str
    api_version: str
    time: str
    subresource: str = ""

    @property
    def out_of_reach(self) -> FieldSet:
        """Fields that such a write cannot change, and so cannot own."""
        if self.subresource == "":
            return {"f:status": {}}
        if self.subresource == "status":
            in_core = "." not in self.api_version.partition("/")[0]
            return {"f:spec": {}} if in_core else {"f:spec": {}, "f:metadata": {}}
        return {}


@refuses_deep_nesting
def record_update(
    live: Document | None, new: Document, write: Authorship, rule: MergeRule, *, empty: Document
) -> Document:
    """The new document with its managers: the writer owns the changed fields, and other managers lose them.

    `new` is the document as it will be stored. `empty` is an object of the kind without fields, to which a new object is compared.
    """
    managers = _managers_in_effect(live, new, write)
    if live is not None and not managers:
        return with_managers(new, {})
    changes = _reachable(compare(live or empty, new, rule), write)
    writer = ManagerId(write.manager, UPDATE, write.api_version, write.subresource)
    mine = managers.get(writer, Ownership({}, write.api_version, None))
    _disown(managers, changes, except_for=writer)
    kept = difference(mine.fields, changes.removed)
    if written := changes.written:
        managers[writer] = Ownership(union(kept, written), write.api_version, write.time)
    elif kept:
        managers[writer] = replace(mine, fields=kept)
    else:
        managers.pop(writer, None)
    return with_managers(new, _merge_ancient(managers))


@refuses_deep_nesting
def apply(
    live: Document | None,
    applied: Document,
    write: Authorship,
    rule: MergeRule,
    *,
    empty: Document,
    force: bool = False,
) -> Document:
    """The live document with the applied one merged into it, and its managers; raises `Conflict` unless forced.

    `live` must be in the applied version; `None` for a create. `empty` is as in `record_update`.
    """
    _check_applicable(applied, write)
    reached = remove(applied, write.out_of_reach, rule)
    # What becomes of the status of a new object is up to its kind: a node keeps it. It has no owner in any case.
    applied = applied if live is None else reached
    base = live or {}
    managers = managers_of(base)
    if live is not None and not managers:
        first = replace(write, manager=BEFORE_FIRST_APPLY, subresource="")
        managers = managers_of(record_update(None, live, first, rule, empty=empty))
    applier = ManagerId(write.manager, APPLY, "", write.subresource)
    before = managers.pop(applier, None)
    mine = difference(fields_of(reached, rule), _SERVERS_OWN)
    merged = merge(base, applied, rule)
    if before is not None:
        merged = remove(merged, _abandoned(before.fields, mine, managers), rule)
    changes = _reachable(compare(base, merged, rule), write)
    conflicts = _conflicts(managers, changes)
    if conflicts and not force:
        _refuse_conflicts(conflicts, _adopted_by_kubectl(base, write, rule))
    _disown(managers, changes)
    if mine:
        managers[applier] = Ownership(mine, write.api_version, write.time)
    return with_managers(_keep_last_applied(merged, base, applied, write), managers)


def is_noop_update(live: Document, new: Document) -> bool:
    """True if the documents differ in timestamps of managers and in the resource version at most."""
    return _without_times(live) == _without_times(new)


@lru_cache(maxsize=256)
def manager_of_user_agent(user_agent: str) -> str:
    """The manager's name for a write without one: the program in the user agent."""
    name = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
    return name.encode()[:MANAGER_LENGTH_MAX].decode(errors="ignore") or "unknown"


# --- what changes hands -------------------------------------------------------------------------------------


def _reachable(changes: Changes, write: Authorship) -> Changes:
    def owned(fields: FieldSet) -> FieldSet:
        return without_below(difference(fields, _SERVERS_OWN), write.out_of_reach)

    return Changes(owned(changes.added), owned(changes.modified), owned(changes.removed))


def _abandoned(before: FieldSet, mine: FieldSet, others: Managers) -> FieldSet:
    """The fields that the applier owned, no longer applies, and no other manager owns."""
    kept = mine
    for other in others.values():
        kept = union(kept, other.fields)
    return difference(with_parents(before), with_parents(kept))


def _conflicts(managers: Managers, changes: Changes) -> dict[ManagerId, FieldSet]:
    written = changes.written
    found = ((manager, intersection(owned.fields, written)) for manager, owned in managers.items())
    return {manager: fields for manager, fields in found if fields}


def _disown(managers: Managers, changes: Changes, *, except_for: ManagerId | None = None) -> None:
    """Remove the changed fields from all managers but one, and managers without fields."""
    lost = union(changes.written, changes.removed)
    if not lost:
        return
    for manager, owned in list(managers.items()):
        if manager == except_for:
            continue
        kept = difference(owned.fields, lost)
        if kept:
            managers[manager] = replace(owned, fields=kept)
        else:
            del managers[manager]


def _merge_ancient(managers: Managers) -> Managers:
    """The managers; if too many update, the oldest are merged into one per version."""
    updating = [manager for manager in managers if manager.operation == UPDATE]
    excess = len(updating) - UPDATING_MANAGERS_MAX
    if excess <= 0:
        return managers
    updating.sort(key=lambda manager: (managers[manager].time or "", manager))
    for manager in updating[: excess + 1]:
        owned = managers.pop(manager)
        ancient = ManagerId(ANCIENT_CHANGES, UPDATE, owned.api_version, "")
        before = managers.get(ancient)
        managers[ancient] = replace(owned, fields=union(before.fields, owned.fields)) if before else owned
    return managers


# --- conflicts ----------------------------------------------------------------------------------------------


def _refuse_conflicts(conflicts: Mapping[ManagerId, FieldSet], adopted: FieldSet) -> None:
    told = [
        (manager, path) for manager, fields in sorted(conflicts.items()) for path in paths(difference(fields, adopted))
    ]
    causes = [Cause("FieldManagerConflict", f"conflict with {_readable(manager)}", path) for manager, path in told]
    if not causes:
        return
    if len(causes) == 1:
        message = f"1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        message = f"{len(causes)} conflicts: " + "\n".join(_by_manager(told))
    raise Conflict(f"Apply failed with {message}", details=ErrorDetails(causes=tuple(causes)))


def _by_manager(conflicts: Iterable[tuple[ManagerId, str]]) -> Iterator[str]:
    for manager, found in groupby(conflicts, key=itemgetter(0)):
        yield f"conflicts with {_readable(manager)}:"
        yield from (f"- {path}" for _, path in found)


def _readable(manager: ManagerId) -> str:
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    return f"{text} using {manager.api_version}" if manager.operation == UPDATE else text


def _adopted_by_kubectl(live: Document, write: Authorship, rule: MergeRule) -> FieldSet:
    """The fields that client-side `kubectl apply` set: the same user owns them, so they do not conflict."""
    last = _last_applied(live) if write.manager == KUBECTL else None
    if last is None:
        return {}
    changes = compare(last, live, rule)
    return difference(fields_of(last, rule), union(changes.written, changes.removed))


def _keep_last_applied(merged: Document, live: Document, applied: Document, write: Authorship) -> Document:
    """The document with kubectl's last-applied annotation updated, if it has one."""
    if write.manager != KUBECTL or _last_applied(live) is None:
        return merged
    metadata = merged["metadata"]
    record = msgspec.json.encode(applied).decode() + "\n"
    return {**merged, "metadata": {**metadata, "annotations": {**metadata["annotations"], LAST_APPLIED: record}}}


def _last_applied(document: Document) -> Document | None:
    text = ((document.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else None
    except UNREADABLE:
        return None


def _check_applicable(applied: Document, write: Authorship) -> None:
    if applied.get("apiVersion") != write.api_version:
        raise BadRequest(
            f"incorrect version specified in apply patch. Specified patch version: {applied.get('apiVersion')}, "
            f"expected: {write.api_version}"
        )
    if not isinstance(applied.get("metadata", {}), dict):
        raise BadRequest("metadata must be an object")
    if applied.get("metadata", {}).get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")


def _managers_in_effect(live: Document | None, new: Document, write: Authorship) -> Managers:
    """The managers that the request sends, or those of the live object if it sends none that are well-formed.

    One empty entry removes all managers, as in Kubernetes.
    """
    if live is None:
        return {}
    entries = None if write.subresource else new.get("metadata", {}).get("managedFields")
    if entries == [{}]:
        return {}
    # Most clients send back what they have read, which needs no validation.
    is_echo = not entries or entries == live.get("metadata", {}).get("managedFields")
    return managers_of(live if is_echo or not are_well_formed(entries) else new)


def _without_times(document: Document) -> Document:
    metadata = {name: value for name, value in document.get("metadata", {}).items() if name != "resourceVersion"}
    if entries := metadata.get("managedFields"):
        metadata["managedFields"] = [
            {name: value for name, value in entry.items() if name != "time"} for entry in entries
        ]
    return {**document, "metadata": metadata}


# --- Managed fields -------------------------------------------------------------------------------------------------
# Parses and prints the entries of `metadata.managedFields`.


APPLY: Final = "Apply"
UPDATE: Final = "Update"


class ManagerId(NamedTuple):
    """The identity of a manager. An applying manager is the same in every API version."""

    name: str
    operation: str
    api_version: str
    subresource: str


@dataclass(frozen=True, slots=True)
class Ownership:
    """The fields that a manager owns, and the time of its last change."""

    fields: FieldSet
    api_version: str
    time: str | None


Managers = dict[ManagerId, Ownership]


def managers_of(document: Document) -> Managers:
    """The managers of a stored object, whose entries are well-formed."""
    entries = document.get("metadata", {}).get("managedFields") or ()
    return {
        _manager(entry): Ownership(entry.get("fieldsV1") or {}, entry["apiVersion"], entry.get("time"))
        for entry in entries
    }


def are_well_formed(entries: Any) -> bool:
    """True if entries that a client sends can be stored."""
    return isinstance(entries, list) and all(map(_is_well_formed, entries))


def with_managers(document: Document, managers: Managers) -> Document:
    metadata = {name: value for name, value in document.get("metadata", {}).items() if name != "managedFields"}
    if managers:
        metadata["managedFields"] = [_print_entry(*entry) for entry in sorted(managers.items(), key=_entry_order)]
    return {**document, "metadata": metadata}


def _entry_order(entry: tuple[ManagerId, Ownership]) -> tuple[str, ...]:
    manager, owned = entry
    return (manager.operation, owned.time or "", manager.name, owned.api_version, manager.subresource)


def _print_entry(manager: ManagerId, owned: Ownership) -> Document:
    printed: Document = {"manager": manager.name, "operation": manager.operation, "apiVersion": owned.api_version}
    if owned.time is not None:
        printed["time"] = owned.time
    printed["fieldsType"] = "FieldsV1"
    printed["fieldsV1"] = owned.fields
    if manager.subresource:
        printed["subresource"] = manager.subresource
    return printed


def _manager(entry: Document) -> ManagerId:
    operation = entry["operation"]
    version = "" if operation == APPLY else entry["apiVersion"]
    return ManagerId(entry.get("manager", ""), operation, version, entry.get("subresource", ""))


def _is_well_formed(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("operation") in (APPLY, UPDATE)
        and entry.get("fieldsType") == "FieldsV1"
        and isinstance(entry.get("apiVersion"), str)
        and all(isinstance(entry.get(name, ""), str) for name in ("manager", "subresource", "time"))
        and _is_field_set(entry.get("fieldsV1") or {})
    )


def _is_field_set(fields: Any) -> bool:
    return isinstance(fields, dict) and all(
        _is_element(name) and _is_field_set(below) for name, below in fields.items()
    )


def _is_element(name: str) -> bool:
    kind, _, text = name.partition(":")
    if kind in ("k", "v", "i"):
        try:
            return isinstance(msgspec.json.decode(text), dict) == (kind == "k")
        except UNREADABLE:
            return False
    return kind == "f" or name == SELF
