"""Warnings that depend on several objects: selectors for names that no device has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dralloc.api.codec import DecodeError
from dralloc.api.conversion import to_hub
from dralloc.api.diagnostics import Diagnostic, Severity
from dralloc.api.inventory import Inventory, find_unknown_names, take_inventory
from dralloc.api.kind_codec import read_object
from dralloc.api.manifests import Document, Manifest
from dralloc.api.positions import Steps, nearest
from dralloc.api.registry import find_kind
from dralloc.api.resource_v1 import ResourceSlice
from dralloc.cel.compiler import compile_selector_expression
from dralloc.cel.errors import CelCompileError
from dralloc.primitives.field_errors import FieldPath


def warn_about_unknown_names(manifests: Sequence[Manifest]) -> Iterator[tuple[int, Diagnostic]]:
    """Yields warnings about selectors, with the index of their manifest. Silent if no manifest has a device."""
    inventory = take_inventory(found for manifest in manifests for found in _slices(manifest))
    if not inventory.device_count:
        return
    for index, manifest in enumerate(manifests):
        for diagnostic in _warnings(manifest, inventory):
            yield index, diagnostic


def _slices(manifest: Manifest) -> Iterator[ResourceSlice]:
    for document in manifest.documents:
        kind = find_kind(document.api_version, document.kind)
        if kind is None or kind.hub is not ResourceSlice:
            continue
        try:
            found = to_hub(read_object(kind, document.api_version.rpartition("/")[2], document.body))
        except DecodeError:
            # The decode error is reported separately.
            continue
        assert isinstance(found, ResourceSlice)
        yield found


def _warnings(manifest: Manifest, inventory: Inventory) -> Iterator[Diagnostic]:
    found = [
        (document, steps, str(unknown))
        for document in manifest.documents
        for steps, expression in _expressions(document.tree)
        for unknown in _unknown_names(expression, inventory)
    ]
    positions = manifest.locate(document for document, _, _ in found)
    for document, steps, message in found:
        position = nearest(positions[document.index], (*document.prefix, *steps))
        yield Diagnostic(position, Severity.WARNING, message, _shown(steps), document.kind, _name(document))


def _unknown_names(expression: str, inventory: Inventory) -> Sequence[object]:
    try:
        return find_unknown_names(compile_selector_expression(expression).reads, inventory)
    except CelCompileError:
        return ()


def _expressions(tree: Any) -> Iterator[tuple[Steps, str]]:
    """Yields every `cel.expression` in an object of any kind and version."""
    pending: list[tuple[Steps, Any]] = [((), tree)]
    while pending:
        steps, part = pending.pop()
        if isinstance(part, list):
            pending.extend(((*steps, index), part[index]) for index in reversed(range(len(part))))
        elif isinstance(part, dict):
            pending.extend(((*steps, name), part[name]) for name in reversed(part))
        elif isinstance(part, str) and steps[-2:] == ("cel", "expression"):
            yield steps, part


def _shown(steps: Steps) -> str:
    path: FieldPath | None = None
    for step in steps:
        path = FieldPath(path, step)
    return str(path)


def _name(document: Document) -> str:
    metadata = document.tree.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
