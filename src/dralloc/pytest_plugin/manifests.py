"""The objects that a test applies: from a file or directory, a text, a document, or a typed object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dralloc.api.manifests import read_manifest
from dralloc.api.meta_v1 import ApiObject
from dralloc.cli.manifest_files import read_sources
from dralloc.client.async_client import Item

Source = str | Path | Mapping[str, Any] | ApiObject


class BadManifest(ValueError):
    """A source without valid objects; the message says where and why."""


def documents_of(source: Source) -> Iterator[Item]:
    """The objects of a source, in order. A text of one line is a path, unless it is JSON."""
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source and not source.startswith("{")):
        for file in read_sources([str(source)]):
            if file.error:
                raise BadManifest(f"{file.name}: {file.error}")
            yield from _documents(file.content, file.name)
    elif isinstance(source, str):
        yield from _documents(source.encode(), "the text")
    else:
        yield source


def _documents(content: bytes, name: str) -> Iterator[Mapping[str, Any]]:
    manifest = read_manifest(content)
    if manifest.error is not None:
        place = manifest.error.position
        raise BadManifest(f"{name}, line {place.line}, column {place.column}: {manifest.error}")
    for document in manifest.documents:
        if not isinstance(document.tree, dict) or not document.kind:
            raise BadManifest(f"{name}: document {document.index + 1} is not a Kubernetes object: it has no kind")
        yield document.tree
