"""Admission for tests: takes a document, returns the stored document or the causes of the refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from dralloc.kube.admission import Admitted, Refused, Verb, WriteRequest, admit
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import find_kind, print_object, read_object
from dralloc.kube.strategy import AdmissionContext
from dralloc.primitives.features import FeatureGates

Document = Mapping[str, Any]
Causes = list[tuple[str, str]]

NOW: Final = datetime(2026, 7, 1, 12, tzinfo=UTC)
NOW_TEXT: Final = "2026-07-01T12:00:00Z"
NAMESPACE: Final = "default"


def admission_context(gates: str = "", **facts: Any) -> AdmissionContext:
    """A default admission context; `gates` as on the command line."""
    known: dict[str, Any] = {"namespace_labels": {}, "uid": "uid-1", "name_suffix": "x7k2p", **facts}
    return AdmissionContext(gates=FeatureGates.parse(gates), now=NOW, **known)


def create(document: Document, context: AdmissionContext | None = None) -> Admitted | Refused:
    return _write(Verb.CREATE, document, None, "", context)


def update(document: Document, old: ApiObject, context: AdmissionContext | None = None) -> Admitted | Refused:
    return _write(Verb.UPDATE, document, old, "", context)


def update_status(document: Document, old: ApiObject, context: AdmissionContext | None = None) -> Admitted | Refused:
    return _write(Verb.UPDATE, document, old, "status", context)


def stored(document: Document, context: AdmissionContext | None = None) -> ApiObject:
    """The object that a create stores; fails if it is refused."""
    outcome = create(document, context)
    assert isinstance(outcome, Admitted), f"refused: {[str(fault) for fault in outcome.faults]}"
    return outcome.stored


def document_of(obj: ApiObject) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(print_object(obj))
    return parsed


def causes(outcome: Admitted | Refused) -> Causes:
    """Reason and field of each cause of the refusal; empty if the object is accepted."""
    faults = outcome.faults if isinstance(outcome, Refused) else ()
    return sorted((fault.reason.removeprefix("FieldValue"), str(fault.path)) for fault in faults)


def _write(
    verb: Verb, document: Document, old: ApiObject | None, subresource: str, context: AdmissionContext | None
) -> Admitted | Refused:
    kind = _kind_of(document)
    version = document["apiVersion"].rpartition("/")[2]
    body = json.dumps(document).encode()
    request = WriteRequest(
        verb=verb,
        kind=kind,
        version=version,
        new=read_object(kind, version, body),
        old=old,
        subresource=subresource,
        namespace=NAMESPACE if kind.namespaced else "",
        name=old.metadata.name if old is not None else "",
        body=body,
    )
    return admit(request, context or admission_context())


def _kind_of(document: Document) -> Kind:
    kind = find_kind(document["apiVersion"], document["kind"])
    assert kind is not None, f"not served: {document['apiVersion']} {document['kind']}"
    return kind
