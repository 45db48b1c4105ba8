"""Writes to `resource.k8s.io`: the stored object, or every cause of the error.

A line is a dry run over HTTP. It is passed to admission, or sent to a server if one is given: `setup` first, then the
request. The code, the causes of an error, and the object without server-generated values are compared. Lines of
Kubernetes' own test tables have a verb instead of a path; `strategies` runs them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from dralloc.conformance.api_over_http import compare_over_http
from dralloc.conformance.server_connection import ServerConnection, connect
from dralloc.conformance.strategies import compare_strategy, is_strategy_line
from dralloc.conformance.vector_family import BadVectors, LineFamily, VectorOptions, VectorVerdict
from dralloc.conformance.write_outcome import WriteOutcome, compare_outcome
from dralloc.kube.admission import Admitted, Refused, Verb, WriteRequest, admit
from dralloc.kube.codec import DecodeError, encode
from dralloc.kube.conversion import from_hub
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import find_kind, find_resource, read_object
from dralloc.kube.strategy import AdmissionContext
from dralloc.primitives.errors import ApiError, BadRequest, Invalid, NotFound

# Older than every recorded time, so that a generated time can be distinguished from one that was sent.
NOW: Final = datetime(2001, 1, 1, tzinfo=UTC)

NAMESPACE_LABELS: Final = {"kubernetes.io/metadata.name": "default"}

Objects = dict[tuple[str, str, str], ApiObject]


@dataclass(frozen=True, slots=True)
class _Target:
    """The kind, version and object that a URL addresses."""

    kind: Kind
    version: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind.kind, self.namespace, self.name


def _compare_line(line: Mapping[str, Any], options: VectorOptions) -> Iterator[str]:
    if is_strategy_line(line):
        yield from compare_strategy(line, NOW)
        return
    context = AdmissionContext(
        gates=options.gates, now=NOW, namespace_labels=NAMESPACE_LABELS, uid="uid", name_suffix="abcde"
    )
    objects: Objects = {}
    for prepared in line.get("setup") or ():
        _create(prepared, objects, context)
    try:
        target = _target(line["path"])
        written = _write(line["method"], target, line["body"], objects, context)
    except ApiError as refusal:
        yield from compare_outcome(line, WriteOutcome(refusal.code, str(refusal)))
    else:
        yield from compare_outcome(line, _outcome(written, line["method"], target.version))


# --- The request -------------------------------------------------------------------------------------------------


def _target(path: str) -> _Target:
    """Parses /apis/GROUP/VERSION[/namespaces/NAMESPACE]/PLURAL[/NAME[/SUBRESOURCE]]."""
    _, _, group, version, *rest = urlsplit(path).path.split("/")
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    kind = find_resource(group, version, plural)
    if kind is None:
        raise NotFound("the server could not find the requested resource")
    return _Target(kind, version, namespace, name, subresource)


def _create(body: Mapping[str, Any], objects: Objects, context: AdmissionContext) -> None:
    kind = find_kind(body["apiVersion"], body["kind"])
    assert kind is not None, f"a kind that is not served here: {body['kind']}"
    namespace = body["metadata"].get("namespace", "")
    target = _Target(kind, body["apiVersion"].rpartition("/")[2], namespace, "", "")
    outcome = _write("POST", target, body, objects, context)
    assert isinstance(outcome, Admitted), f"the setup of a line must be accepted: {outcome}"
    metadata = outcome.stored.metadata
    objects[kind.kind, metadata.namespace, metadata.name] = outcome.stored


def _write(
    method: str, target: _Target, body: Mapping[str, Any], objects: Objects, context: AdmissionContext
) -> Admitted | Refused:
    new = _decode(body, target)
    old = None
    if method == "PUT":
        old = objects.get(target.key)
        if old is None:
            raise NotFound(f'{target.kind.plural}.{target.kind.group} "{target.name}" not found')
    request = WriteRequest(
        verb=Verb.UPDATE if method == "PUT" else Verb.CREATE,
        kind=target.kind,
        version=target.version,
        new=new,
        old=old,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name,
    )
    return admit(request, context)


def _decode(body: Mapping[str, Any], target: _Target) -> ApiObject:
    api_version = target.kind.api_version(target.version)
    if (body.get("apiVersion") or api_version, body.get("kind") or target.kind.kind) != (api_version, target.kind.kind):
        raise BadRequest(
            f"the object is a {body.get('kind')} of {body.get('apiVersion')}, which does not match the URL"
        )
    try:
        return read_object(target.kind, target.version, json.dumps(body).encode())
    except DecodeError as error:
        raise BadRequest(
            f'{target.kind.kind} in version "{target.version}" cannot be handled as a {target.kind.kind}: {error}'
        ) from None


def _outcome(written: Admitted | Refused, method: str, version: str) -> WriteOutcome:
    if isinstance(written, Refused):
        causes = tuple((fault.reason, str(fault.path)) for fault in written.faults)
        return WriteOutcome(Invalid.code, causes=causes)
    stored = json.loads(encode(from_hub(written.stored, version)))
    return WriteOutcome(200 if method == "PUT" else 201, object=stored)


class ApiFamily:
    """Writes that are passed to admission, or sent to a server if one is given."""

    def run(self, lines: Iterable[bytes], options: VectorOptions) -> Iterator[VectorVerdict]:
        if options.server is None:
            yield from LineFamily(identify=_identify, compare=_compare_line).run(lines, options)
            return
        with connect(options) as connection:
            over_http = LineFamily(identify=_identify, compare=lambda line, _: _compare_on_server(line, connection))
            yield from over_http.run(lines, options)


def _compare_on_server(line: Mapping[str, Any], connection: ServerConnection) -> Iterator[str]:
    if is_strategy_line(line):
        raise BadVectors("these answers are of the strategies alone; run them without --server")
    return compare_over_http(line, connection)


def _identify(line: Mapping[str, Any]) -> str:
    return str(line["name"])


FAMILY: Final = ApiFamily()
