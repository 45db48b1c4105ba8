"""The messages are those of Kubernetes: the descriptors that a kubectl binary carries read what is written, and write what is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from dralloc.kube import registry
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.protobuf_reader import protobuf_to_json
from dralloc.kube.protobuf_schema import MessageField, message_name, messages
from dralloc.kube.protobuf_writer import to_protobuf, watch_frame
from dralloc.kube.resource_v1 import GROUP
from tests.support.kubernetes_messages import compares_with_kubernetes, files, message_class

_FILE = re.compile(r"k8s\.io/(?:api/(\w+)/(\w+)|apimachinery/pkg/apis/(meta)/(v1))/generated\.proto$")
# Fields that Kubernetes has removed since.
_REMOVED = {"ObjectMeta.clusterName", "EphemeralVolumeSource.readOnly", "ServiceSpec.topologyKeys"}
# Not fields of the JSON form.
_UNLISTED = {"Time", "MicroTime", "Timestamp", "Verbs", "FieldsV1", "Duration", "ExtraValue"}


def packages() -> Iterator[tuple[str, FileDescriptorProto]]:
    for name, file in files().items():
        if match := _FILE.search(name):
            package = ".".join(filter(None, match.groups()))
            if any(message.startswith(f"{package}.") for message in messages()):
                yield package, file


@compares_with_kubernetes
def test_the_table_has_every_field_of_a_published_kubernetes() -> None:
    compared = 0
    for package, file in packages():
        for message in file.message_type:
            listed = messages().get(f"{package}.{message.name}")
            if listed is None or message.name in _UNLISTED:
                continue
            for field in message.field:
                if f"{message.name}.{field.name}" in _REMOVED:
                    continue
                found = listed.get(field.number)
                assert found is not None, f"{package}.{message.name}: {field.number} {field.name}"
                is_repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
                assert (found.is_list or found.is_map) == is_repeated, f"{package}.{message.name}.{field.name}"
                assert found.name.lower() == field.name.lower(), f"{package}.{message.name}: {field.number}"
                compared += 1
    assert compared > 1200


def test_the_table_has_every_field_of_our_types() -> None:
    """A field that the table lacks is lost on the way to and from every client that uses protobuf."""
    missing = set()
    for kind in registry.KINDS:
        for served in kind.versions:
            if kind.group == GROUP and issubclass(served.wire_type, ApiObject):
                name = message_name(f"{GROUP}/{served.version}", kind.kind)
                assert name is not None, kind.kind
                missing |= set(unlisted(served.wire_type, name))
    assert missing == set()


def unlisted(wire_type: type, message: str) -> Iterator[str]:
    listed = dict(listed_fields(message))
    hints = get_type_hints(wire_type)
    for field in msgspec.structs.fields(wire_type):
        if field.encode_name in ("kind", "apiVersion"):
            continue
        if field.encode_name not in listed:
            yield f"{message}.{field.encode_name}"
        elif (part := struct_in(hints[field.name])) and listed[field.encode_name] in messages():
            yield from unlisted(part, listed[field.encode_name])


def listed_fields(message: str) -> Iterator[tuple[str, str]]:
    for field in messages()[message].values():
        if field.is_inlined:
            yield from listed_fields(field.type)
        else:
            yield field.name, field.type


def struct_in(hint: Any) -> type | None:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next(filter(None, map(struct_in, get_args(hint))), None)


# --- Messages of random content ---------------------------------------------------------------------------------------


class Draw:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def message(self, name: str, known: frozenset[str], depth: int = 0) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for field in messages()[name].values():
            if self._random.random() < (0.7 if depth < 3 else 0.2) and self._is_known(name, field, known):
                self._add(document, field, known, depth)
        return document

    def _is_known(self, name: str, field: MessageField, known: frozenset[str]) -> bool:
        return f"{name}.{field.name}" in known

    def _add(self, document: dict[str, Any], field: MessageField, known: frozenset[str], depth: int) -> None:
        if field.is_inlined:
            document |= self.message(field.type, known, depth + 1)
        elif field.is_map:
            document[field.name] = {key: self._value(field.type, known, depth) for key in ("a", "b/c")}
        elif field.is_list:
            document[field.name] = [self._value(field.type, known, depth) for _ in range(self._random.randint(1, 2))]
        else:
            document[field.name] = self._value(field.type, known, depth)

    def _value(self, type_: str, known: frozenset[str], depth: int) -> Any:
        if type_ in messages():
            return self.message(type_, known, depth + 1)
        return self._random.choice(_VALUES[type_])


_VALUES: dict[str, list[Any]] = {
    "string": ["x", "ü<>&", "a" * 200],
    "int": [1, -7, 2**31 - 1, 300],
    "uint": [1, 2**31],
    "bool": [True],
    "double": [0.5, -2.25],
    "bytes": ["AAEC", "/w=="],
    "time": ["2026-11-16T17:00:01Z", "1969-12-31T23:59:59Z"],
    "microtime": ["2026-11-16T17:00:01.000123Z"],
    "quantity": ["10Gi", "500m"],
    "int-or-string": [8080, "http", -1],
    "json": [{"a": [1, None, "x"]}, {"b": {}}],
    "strings": [["a", "b"]],
}

KINDS = [
    ("v1", "Pod"),
    ("v1", "Node"),
    ("v1", "PodList"),
    ("v1", "Service"),
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    ("v1", "Event"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("coordination.k8s.io/v1", "Lease"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("storage.k8s.io/v1", "CSINode"),
    ("events.k8s.io/v1", "Event"),
    ("authentication.k8s.io/v1", "TokenReview"),
    ("authorization.k8s.io/v1", "SubjectAccessReview"),
    ("autoscaling/v1", "HorizontalPodAutoscaler"),
    ("v1", "Status"),
]


@cache
def known_fields() -> frozenset[str]:
    return frozenset(
        f"{package}.{message.name}.{field.name}"
        for package, file in packages()
        for message in file.message_type
        for field in message.field
    )


@compares_with_kubernetes
@pytest.mark.parametrize(("api_version", "kind"), KINDS, ids=lambda part: str(part))
def test_kubernetes_reads_what_is_written(api_version: str, kind: str) -> None:
    name = message_name(api_version, kind)
    assert name is not None
    prefix = "k8s.io.apimachinery.pkg.apis" if name.startswith("meta.") else "k8s.io.api"
    theirs_class = message_class(f"{prefix}.{name}")
    for seed in range(15):
        document = {"apiVersion": api_version, "kind": kind, **Draw(seed).message(name, known_fields())}
        written = to_protobuf(document)
        assert json.loads(protobuf_to_json(written)) == document
        theirs = theirs_class.FromString(_content(written))
        _assert_nothing_is_unknown(theirs)
        again = written.replace(_content(written), theirs.SerializeToString())
        assert json.loads(protobuf_to_json(again)) == document


def _content(written: bytes) -> bytes:
    """The message in the envelope, whose second field it is."""
    type_length = written[5]
    start = 4 + 2 + type_length + 1
    while written[start] & 0x80:
        start += 1
    return written[start + 1 :]


def _assert_nothing_is_unknown(message: Any) -> None:
    from google.protobuf.unknown_fields import UnknownFieldSet

    assert not len(UnknownFieldSet(message)), message.DESCRIPTOR.full_name
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for each in value if field.is_repeated else [value]:
            _assert_nothing_is_unknown(each)


@compares_with_kubernetes
def test_an_event_of_a_watch_has_its_length_in_front() -> None:
    frame = watch_frame("ADDED", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    event_class = message_class("k8s.io.apimachinery.pkg.apis.meta.v1.WatchEvent")
    event = event_class.FromString(frame[4:])
    assert event.type == "ADDED"
    assert json.loads(protobuf_to_json(event.object.raw))["metadata"] == {"name": "a"}


def test_fields_without_a_number_are_left_out() -> None:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "novel": 1}, "status": None}
    assert json.loads(protobuf_to_json(to_protobuf(document)))["metadata"] == {"name": "a"}
