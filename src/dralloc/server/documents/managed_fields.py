"""Parses and prints the entries of `metadata.managedFields`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from dralloc.primitives.decoders import UNREADABLE
from dralloc.server.documents.json_documents import Document
from dralloc.server.documents.owned_fields import SELF, FieldSet

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
