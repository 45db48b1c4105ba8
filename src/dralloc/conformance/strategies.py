"""Writes as Kubernetes' own test tables state them: an object for the strategies of its kind, under given gates.

No HTTP handler takes part: the URL has no name, and `old` is the stored object as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import json

from dralloc.conformance.vector_family import BadVectors
from dralloc.conformance.write_outcome import WriteOutcome, compare_outcome
from dralloc.kube.admin_access import ADMIN_ACCESS_LABEL
from dralloc.kube.admission import Admitted, Refused, Verb, WriteRequest, admit
from dralloc.kube.canonical_form import canonicalize
from dralloc.kube.codec import DecodeError, encode
from dralloc.kube.conversion import V1BETA1, from_hub, to_hub
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import find_kind, read_object
from dralloc.kube.strategy import AdmissionContext, Strategy
from dralloc.primitives.errors import ApiError, Invalid
from dralloc.primitives.features import GATES, FeatureGates

# The namespace of the tables that allows admin access.
ADMIN_NAMESPACE: Final = "kube-system"


def is_strategy_line(line: Mapping[str, Any]) -> bool:
    return "verb" in line


def compare_strategy(line: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Yields the differences between the answer of the strategies and the recorded one."""
    try:
        outcome = _outcome(_write(line, now), line)
    except ApiError as refusal:
        outcome = WriteOutcome(refusal.code, str(refusal))
    yield from compare_outcome(line, outcome)


def _write(line: Mapping[str, Any], now: datetime) -> Admitted | Refused:
    kind = find_kind(line["body"]["apiVersion"], line["kind"])
    if kind is None:
        raise BadVectors(f"a kind that is not served here: {line['kind']}")
    # The tables have gates of other components, too.
    gates = FeatureGates.only(name for name, on in line["gates"].items() if on and name in GATES)
    labels = {ADMIN_ACCESS_LABEL: "true"} if line["namespace"] == ADMIN_NAMESPACE else {}
    context = AdmissionContext(gates=gates, now=now, namespace_labels=labels, uid="uid", name_suffix="abcde")
    request = WriteRequest(
        verb=Verb.CREATE if line["verb"] == "create" else Verb.UPDATE,
        kind=kind,
        version=line["version"],
        new=_read(kind, line["version"], line["body"]),
        old=_read_stored(kind, line["version"], line["old"], context) if "old" in line else None,
        subresource=line["subresource"],
        namespace=line["namespace"],
        is_handled=False,
    )
    return admit(request, context)


def _read_stored(kind: Kind, version: str, body: Mapping[str, Any], context: AdmissionContext) -> ApiObject:
    strategy: Strategy[ApiObject] = kind.strategy(context, flattened=version == V1BETA1)
    return canonicalize(strategy.default(to_hub(_read(kind, version, body))))


def _read(kind: Kind, version: str, body: Mapping[str, Any]) -> ApiObject:
    try:
        return read_object(kind, version, json.encode(body))
    except DecodeError as error:
        raise BadVectors(f"not a {kind.kind}: {error}") from None


def _outcome(written: Admitted | Refused, line: Mapping[str, Any]) -> WriteOutcome:
    if isinstance(written, Refused):
        return WriteOutcome(Invalid.code, causes=tuple((fault.reason, str(fault.path)) for fault in written.faults))
    stored = json.decode(encode(from_hub(written.stored, line["version"])))
    return WriteOutcome(201 if line["verb"] == "create" else 200, object=stored)
