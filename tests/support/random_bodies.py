"""Random bodies of requests, valid, nearly valid and hostile: objects of a kind, patches, options, damaged in many ways."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeVar

import yaml
from msgspec import inspect

from dralloc.kube.kind import Kind
from tests.support.known_objects import known_objects

T = TypeVar("T")

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

NAMES: Final = ("a", "b", "c", "default")
NAMESPACES: Final = ("default", "default", "kube-system", "a")
_STRINGS: Final = (
    "", "a", "default", "gpu.example.com", "node-1", "team", "80Gi", "1.5", "-1", "1e400", "A_b", "x" * 300, "é", "🦊", "\x00", "\u2028",
    "\ud800", "2026-01-01T00:00:00Z", "2026-13-45T99:99:99Z", "true", "null", "device.driver == 'x'",
    "device.attributes['x'].y.z > 3", "device.capacity[", "(" * 60, "a.b.c/d/e", "../..", "%s%n", "f:spec", "~0~1", "*", "$patch", "In",
    "NoSchedule", "Exists", "ExactCount", "All", "Apply", "Update", "v1", "resource.k8s.io/v1",
)  # fmt: skip
_NUMBERS: Final = (
    0,
    1,
    -1,
    2,
    7,
    255,
    2**31,
    -(2**31) - 1,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    10**40,
    0.5,
    -0.0,
    1e300,
)
_PATCH_PATHS: Final = (
    "", "/", "/metadata", "/metadata/name", "/metadata/labels", "/metadata/labels/a", "/metadata/annotations/x~1y", "/spec", "/spec/devices",
    "/spec/devices/0", "/spec/devices/-", "/spec/devices/requests/0/name", "/spec/containers/0", "/status", "/status/conditions/-", "/x",
    "/metadata/managedFields", "/metadata/managedFields/0/fieldsV1", "/metadata/finalizers/0", "/spec/01", "/~2", "x", "/metadata/resourceVersion",
)  # fmt: skip


class RandomBodies:
    """All that it makes is about the objects of one name and namespace."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._name = self._pick(NAMES)
        self._namespace = self._pick(NAMESPACES)

    def _body(self, kind: Kind, version: str, media_type: str) -> bytes:
        if self._one_in(60):
            return self._garbage(2000)
        if self._one_in(150):
            return self._deep()
        if "json-patch" in media_type:
            document: Any = [self._operation() for _ in range(self._chance.randrange(4))]
        elif self._one_in(25):
            document = self._options()
        else:
            document = self._document(kind, version, whole=not media_type.endswith("merge-patch+json"))
        for _ in range(self._pick((0, 0, 1, 1, 2, 5))):
            document = self._mutated(document)
        body = self._encoded(document, media_type, kind, version)
        return self._damaged(body) if self._one_in(8) else body

    def _document(self, kind: Kind, version: str, *, whole: bool) -> Any:
        served = kind.served(version)
        assert served is not None
        known = known_objects().get((kind.api_version(version), kind.kind), ())
        if known and not self._one_in(3):
            document = self._pick(known)
        else:
            document = self._value(_type_info(served.wire_type if kind.view is None else kind.view), 0)
        document = {**document, "apiVersion": kind.api_version(version), "kind": kind.kind}
        metadata = {"name": self._name if not self._one_in(8) else self._pick(NAMES)}
        if kind.namespaced and self._one_in(3):
            metadata["namespace"] = self._namespace
        if whole or self._one_in(4):
            kept = document.get("metadata") if self._one_in(2) else None
            document["metadata"] = {**(kept if isinstance(kept, dict) else {}), **metadata}
            if not self._one_in(6):
                for name in ("resourceVersion", "uid", "managedFields", "deletionTimestamp", "ownerReferences"):
                    document["metadata"].pop(name, None)
        return document

    def _value(self, info: inspect.Type, depth: int) -> Any:
        chance = self._chance
        match info:
            case inspect.StructType():
                share = 0.7 if depth < 3 else 0.35
                return {
                    member.encode_name: self._value(member.type, depth + 1)
                    for member in info.fields
                    if chance.random() < share and depth < 12
                }
            case inspect.VarTupleType() | inspect.ListType():
                return [self._value(info.item_type, depth + 1) for _ in range(self._pick((0, 1, 1, 2)))]
            case inspect.DictType():
                return {
                    self._pick(_STRINGS[1:10]): self._value(info.value_type, depth + 1)
                    for _ in range(self._pick((0, 1, 2)))
                }
            case inspect.UnionType():
                return self._value(self._pick(info.types), depth)
            case inspect.IntType():
                return self._pick(_NUMBERS[:9])
            case inspect.FloatType():
                return self._pick(_NUMBERS)
            case inspect.BoolType():
                return chance.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.CustomType():
                return self._pick(("0", "1", "80Gi", "1500m", "-5", 3, "1e3", "x", ""))
            case inspect.AnyType() | inspect.RawType():
                return self._anything(2)
            case _:
                return self._pick(_STRINGS[:12] if self._one_in(3) else NAMES)

    def _anything(self, depth: int) -> Any:
        match self._chance.randrange(8 if depth else 5):
            case 0:
                return None
            case 1:
                return self._chance.random() < 0.5
            case 2:
                return self._pick(_NUMBERS)
            case 3 | 4:
                return self._pick(_STRINGS)
            case 5:
                return [self._anything(depth - 1) for _ in range(self._chance.randrange(4))]
            case _:
                return {self._pick(_STRINGS): self._anything(depth - 1) for _ in range(self._chance.randrange(4))}

    def _operation(self) -> Any:
        operation = {
            "op": self._pick(("add", "remove", "replace", "move", "copy", "test", "x")),
            "path": self._pick(_PATCH_PATHS),
        }
        if not self._one_in(5):
            operation["value"] = self._anything(2)
        if not self._one_in(3):
            operation["from"] = self._pick(_PATCH_PATHS)
        return operation if not self._one_in(30) else self._anything(1)

    def _options(self) -> Any:
        return {
            "kind": self._pick(("DeleteOptions", "Binding", "Eviction", "Status", "List", "Table")),
            "apiVersion": self._pick(("v1", "policy/v1", "meta.k8s.io/v1")),
            "metadata": self._anything(2),
            "target": self._anything(2),
            "preconditions": self._anything(1),
            "gracePeriodSeconds": self._anything(0),
            "propagationPolicy": self._anything(0),
            "dryRun": self._anything(1),
            "items": self._anything(2),
        }

    def _mutated(self, document: Any) -> Any:
        """The document with one part replaced, removed, repeated or added."""
        if (
            not isinstance(document, dict | list)
            or not document
            or self._one_in(4 if isinstance(document, dict) else 8)
        ):
            if isinstance(document, dict) and not self._one_in(3):
                return {**document, self._pick(_STRINGS): self._anything(2)}
            return self._anything(2)
        if isinstance(document, list):
            place = self._chance.randrange(len(document))
            changed = self._mutated(document[place])
            return [*document[:place], changed, *document[place + (0 if self._one_in(6) else 1) :]]
        name = self._pick(tuple(document))
        if self._one_in(10):
            return {other: value for other, value in document.items() if other != name}
        return {**document, name: self._mutated(document[name])}

    def _encoded(self, document: Any, media_type: str, kind: Kind, version: str) -> bytes:
        if "protobuf" in media_type:
            return self._protobuf(kind.api_version(version), kind.kind)
        if "yaml" in media_type and self._one_in(2):
            try:
                text: str = yaml.dump(document, Dumper=_Dumper, allow_unicode=self._one_in(2))
                return text.encode(errors="surrogatepass")
            except (yaml.YAMLError, UnicodeEncodeError):
                pass
        return json.dumps(document, ensure_ascii=self._one_in(2)).encode(errors="surrogatepass")

    def _protobuf(self, api_version: str, kind: str) -> bytes:
        type_ = _member(1, api_version.encode()) + _member(2, kind.encode())
        name = _member(1, self._pick(NAMES).encode())
        content = _member(1, name) + b"".join(self._wire_member(3) for _ in range(self._chance.randrange(4)))
        return b"k8s\x00" + _member(1, type_) + _member(2, content)

    def _wire_member(self, depth: int) -> bytes:
        number = self._chance.randrange(1, 12)
        if depth and self._one_in(2):
            return _member(number, b"".join(self._wire_member(depth - 1) for _ in range(self._chance.randrange(4))))
        if self._one_in(2):
            return _varint(number << 3) + _varint(self._pick((0, 1, 2**63, 2**64 - 1, 300)))
        return _member(number, self._pick(_STRINGS).encode(errors="surrogatepass"))

    def _deep(self) -> bytes:
        piece, end = self._pick(
            ((b"[", b"]"), (b'{"a":', b"}"), (b'{"spec":[', b"]}"), (b"- ", b""), (b"? ", b""), (b"\x0a\x7f", b""))
        )
        count = self._pick((100, 251, 1000, 20_000))
        return piece * count + (b"1" + end * count if self._one_in(2) else b"")

    def _damaged(self, body: bytes) -> bytes:
        place = self._chance.randrange(len(body) + 1)
        match self._chance.randrange(5):
            case 0:
                return body[:place]
            case 1:
                return body[:place] + self._garbage(4) + body[place:]
            case 2:
                return body[:place] + bytes([self._chance.randrange(256)]) + body[place + 1 :]
            case 3:
                return body + body
            case _:
                return (
                    self._pick(
                        (
                            b"\xef\xbb\xbf",
                            b"\xff\xfe",
                            b"---\n",
                            b"%YAML 1.1\n---\n",
                            b"&a [*a]\n",
                            b"!!python/x ",
                            b"\x00",
                        )
                    )
                    + body
                )

    def _garbage(self, length_max: int) -> bytes:
        return self._chance.randbytes(self._chance.randrange(1, length_max))

    def _one_in(self, count: int) -> bool:
        return self._chance.random() * count < 1

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._chance.random() * len(choices))]


_type_info = cache(inspect.type_info)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _member(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content
