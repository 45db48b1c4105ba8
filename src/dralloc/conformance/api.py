"""Writes to `resource.k8s.io`: what is stored, or every cause of the refusal.

A line is a dry run over HTTP. It is put to admission itself, without a server: `setup` is admitted first, then the
request. What counts is the code, the causes of a refusal, and the object without what a server makes up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from dralloc.api.admission import Admitted, Refused, Verb, WriteRequest, admit
from dralloc.api.codec import DecodeError, encode
from dralloc.api.convert import from_hub
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.registry import Kind, find_kind, find_resource, read_object
from dralloc.api.strategy import Surroundings
from dralloc.conformance.frame import LineFamily, Options
from dralloc.primitives.errors import ApiError, BadRequest, Invalid, NotFound

# No recorded time is that old, so that a time which we made up can be told from one that was sent.
NOW: Final = datetime(2001, 1, 1, tzinfo=UTC)
NOW_TEXT: Final = "2001-01-01T00:00:00Z"
MADE_UP: Final = "<made up>"
# What recorded objects leave out.
LEFT_OUT: Final = frozenset({"uid", "creationTimestamp", "resourceVersion", "managedFields", "generation", "selfLink"})

NAMESPACE_LABELS: Final = {"kubernetes.io/metadata.name": "default"}

Objects = dict[tuple[str, str, str], ApiObject]


@dataclass(frozen=True, slots=True)
class _Target:
    """What a URL speaks of."""

    kind: Kind
    version: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind.kind, self.namespace, self.name


def _judge(line: Mapping[str, Any], options: Options) -> Iterator[str]:
    around = Surroundings(
        gates=options.gates, now=NOW, namespace_labels=NAMESPACE_LABELS, uid="uid", name_suffix="abcde"
    )
    objects: Objects = {}
    for prepared in line.get("setup") or ():
        _create(prepared, objects, around)
    try:
        target = _target(line["path"])
        outcome = _write(line["method"], target, line["body"], objects, around)
    except ApiError as refusal:
        yield from _compare_code(line, refusal.code, str(refusal))
        return
    if isinstance(outcome, Refused):
        yield from _compare_refusal(line, outcome)
    else:
        yield from _compare_object(line, outcome, target.version)


# --- The request -------------------------------------------------------------------------------------------------


def _target(path: str) -> _Target:
    """Reads /apis/GROUP/VERSION[/namespaces/NAMESPACE]/PLURAL[/NAME[/SUBRESOURCE]]."""
    _, _, group, version, *rest = urlsplit(path).path.split("/")
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    kind = find_resource(group, version, plural)
    if kind is None:
        raise NotFound("the server could not find the requested resource")
    return _Target(kind, version, namespace, name, subresource)


def _create(body: Mapping[str, Any], objects: Objects, around: Surroundings) -> None:
    kind = find_kind(body["apiVersion"], body["kind"])
    assert kind is not None, f"a kind that is not served here: {body['kind']}"
    namespace = body["metadata"].get("namespace", "")
    target = _Target(kind, body["apiVersion"].rpartition("/")[2], namespace, "", "")
    outcome = _write("POST", target, body, objects, around)
    assert isinstance(outcome, Admitted), f"what a line is built on must be accepted: {outcome}"
    metadata = outcome.stored.metadata
    objects[kind.kind, metadata.namespace, metadata.name] = outcome.stored


def _write(
    method: str, target: _Target, body: Mapping[str, Any], objects: Objects, around: Surroundings
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
    return admit(request, around)


def _decode(body: Mapping[str, Any], target: _Target) -> ApiObject:
    api_version = target.kind.api_version(target.version)
    if (body.get("apiVersion") or api_version, body.get("kind") or target.kind.kind) != (api_version, target.kind.kind):
        raise BadRequest(f"the object is a {body.get('kind')} of {body.get('apiVersion')}, and the URL is not of those")
    try:
        return read_object(target.kind, target.version, json.dumps(body).encode())
    except DecodeError as error:
        raise BadRequest(
            f'{target.kind.kind} in version "{target.version}" cannot be handled as a {target.kind.kind}: {error}'
        ) from None


# --- The comparison ----------------------------------------------------------------------------------------------


def _compare_code(line: Mapping[str, Any], code: int, message: str) -> Iterator[str]:
    if line["code"] != code:
        yield f"code: expected {line['code']} ({_shown(line.get('causes') or line.get('message'))}), got {code}: {message}"


def _compare_refusal(line: Mapping[str, Any], refused: Refused) -> Iterator[str]:
    causes = sorted([fault.reason, str(fault.path)] for fault in refused.faults)
    if line["code"] != Invalid.code:
        yield f"code: expected {line['code']}, got {Invalid.code}: {_shown([str(fault) for fault in refused.faults])}"
        return
    expected = sorted(line["causes"])
    for cause in _difference(expected, causes):
        yield f"cause missing: {cause[0]} {cause[1]} (of {line['message']!r})"
    for cause in _difference(causes, expected):
        yield f"cause too much: {cause[0]} {cause[1]}"


def _difference(causes: list[list[str]], others: list[list[str]]) -> list[list[str]]:
    """What is in the one and, as often, not in the other."""
    left = list(others)
    missing = []
    for cause in causes:
        if cause in left:
            left.remove(cause)
        else:
            missing.append(cause)
    return missing


def _compare_object(line: Mapping[str, Any], admitted: Admitted, version: str) -> Iterator[str]:
    accepted = 200 if line["method"] == "PUT" else 201
    if line["code"] != accepted:
        yield f"code: expected {line['code']} ({_shown(line.get('causes') or line.get('message'))}), got {accepted}"
        return
    sent = json.dumps([line["body"], line.get("setup")])
    expected = _comparable(line["object"], sent)
    got = _comparable(json.loads(encode(from_hub(admitted.stored, version))), sent)
    if got != expected:
        yield f"object: expected {_shown(expected)}, got {_shown(got)}"


def _comparable(tree: Any, sent: str) -> Any:
    """The object without what a server makes up; a time that nobody sent was."""
    if isinstance(tree, list):
        return [_comparable(item, sent) for item in tree]
    if not isinstance(tree, dict):
        return tree
    comparable = {name: _comparable(value, sent) for name, value in tree.items() if name != "metadata"}
    if "metadata" in tree:
        comparable["metadata"] = {name: value for name, value in tree["metadata"].items() if name not in LEFT_OUT}
    time = tree.get("timeAdded")
    if time is not None and f'"{time}"' not in sent:
        comparable["timeAdded"] = MADE_UP
    return comparable


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


FAMILY: Final = LineFamily(identify=lambda line: str(line["name"]), judge=_judge)
