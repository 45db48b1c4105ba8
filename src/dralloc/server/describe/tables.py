"""Objects as tables, which `kubectl get` prints.

`resource_columns`, `core_columns` and `stored_columns` define the columns. Kubernetes' columns keep their names and order; additional ones stand between
them. Columns of priority 1 are for `kubectl get -o wide`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final

from dralloc.primitives.errors import BadRequest
from dralloc.server.describe.core_columns import CORE_COLUMNS
from dralloc.server.describe.resource_columns import RESOURCE_COLUMNS
from dralloc.server.describe.scheduling_columns import SCHEDULING_COLUMNS
from dralloc.server.describe.stored_columns import STORED_COLUMNS
from dralloc.server.describe.table_columns import AGE, NAME, UNKNOWN, Cell, Column
from dralloc.server.documents.json_documents import Document

API_VERSION: Final = "meta.k8s.io/v1"

_COLUMNS: Final[Mapping[tuple[str, str], tuple[Column, ...]]] = {
    **RESOURCE_COLUMNS,
    **CORE_COLUMNS,
    **SCHEDULING_COLUMNS,
    **STORED_COLUMNS,
}
_ANY_KIND: Final = (NAME, AGE)


class IncludeObject(Enum):
    """How much of each object its row includes."""

    NONE = "None"
    METADATA = "Metadata"
    OBJECT = "Object"


def read_include_object(text: str) -> IncludeObject:
    """The `includeObject` parameter; default: the metadata."""
    try:
        return IncludeObject(text or "Metadata")
    except ValueError:
        raise BadRequest(f'unrecognized includeObject value: "{text}"') from None


def table_of(
    group: str,
    kind: str,
    documents: Iterable[Document],
    now: datetime,
    *,
    include: IncludeObject = IncludeObject.METADATA,
    list_metadata: Mapping[str, Any] | None = None,
    with_columns: bool = True,
) -> Document:
    """The documents as one table. In a watch, only the first event needs the columns."""
    columns = _COLUMNS.get((group, kind), _ANY_KIND)
    return {
        "kind": "Table",
        "apiVersion": API_VERSION,
        "metadata": dict(list_metadata or {}),
        "columnDefinitions": [_definition(column) for column in columns] if with_columns else [],
        "rows": [_row(document, columns, now, include) for document in documents],
    }


def partial_metadata(document: Document) -> Document:
    """The object's metadata, as a PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": API_VERSION, "metadata": document["metadata"]}


def _definition(column: Column) -> Document:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(document: Document, columns: Iterable[Column], now: datetime, include: IncludeObject) -> Document:
    row: Document = {"cells": [_cell(column, document, now) for column in columns]}
    if include is IncludeObject.OBJECT:
        row["object"] = document
    elif include is IncludeObject.METADATA:
        row["object"] = partial_metadata(document)
    return row


def _cell(column: Column, document: Document, now: datetime) -> Cell:
    try:
        return column.cell(document, now)
    except (AttributeError, LookupError, TypeError, ValueError):
        # Fields without a model can have any shape: one malformed object must not hide the others.
        return UNKNOWN
