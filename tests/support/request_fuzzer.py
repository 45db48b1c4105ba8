"""Random requests to an API server, valid, nearly valid and hostile, and a runner that looks for failures.

A request is a function of its seed and number, so that a failure can be repeated alone. A failure is an answer of 500, no answer,
or a server that is not healthy afterwards.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, quote_from_bytes, unquote

import yaml
from msgspec import inspect

from dralloc.api.kind import Kind
from dralloc.api.registry import KINDS

T = TypeVar("T")

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

# Longer than any request may take, even on a busy machine.
ANSWER_TIMEOUT_S: Final = 60.0
CONNECTIONS: Final = 8

NAMES: Final = ("a", "b", "c", "default")
NAMESPACES: Final = ("default", "default", "kube-system", "a")
BATCH: Final = "/dralloc/v1/batch"
_MEDIA_TYPES: Final = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "text/plain",
    "",
)
_METHODS: Final = (*("GET",) * 5, *("POST",) * 6, *("PUT",) * 4, *("PATCH",) * 7, "DELETE", "HEAD", "OPTIONS")
_PATCH_TYPES: Final = _MEDIA_TYPES[3:7]
_ACCEPTS: Final = (
    "application/json",
    "*/*",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/vnd.kubernetes.protobuf",
    "application/json;q=x, */*;q=",
    ";,;as=;q=nan",
)
_PLAIN_PATHS: Final = (
    "/", "/api", "/apis", "/api/v1", "/apis/resource.k8s.io", "/apis/resource.k8s.io/v1", "/openapi/v2", "/openapi/v3",
    "/openapi/v3/apis/resource.k8s.io/v1", "/version", "/healthz", "/livez", "/readyz", "/metrics", "/ui/", "/ui/index.html",
    "/dralloc/v1/explain/pods/default/a", "/dralloc/v1/explain/x", "/api/v1/bindings", "/api/v1/namespaces/default/bindings",
    "/apis/missing.example.com/v1/things", "/api/v2/pods",
)  # fmt: skip
_QUERIES: Final[dict[str, Sequence[str]]] = {
    "limit": ("0", "1", "2", "500", "-1", "x", "9" * 30, "9" * 5000, "1.5"),
    "continue": ("", "x", "e30", "eyJyZXZpc2lvbiI6MX0", "AAAA", "🦊"),
    "resourceVersion": ("0", "1", "7", "-1", "x", "9" * 30, "9" * 5000, "1e3", "٣"),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "x"),
    "labelSelector": ("a=b", "a!=b", "a in (b,c)", "a notin (b)", "!a", "a", "a in (", "a=b,,c", "=", "🦊", "a" * 300, "(" * 50),
    "fieldSelector": ("metadata.name=a", "metadata.namespace=team", "spec.nodeName=node-1", "status.phase!=Running", "x=y", "=", ",",
                      "spec.nodeName", "metadata.name=a\\", "metadata.name=\\,"),
    "watch": ("1", "true", "0", "x"),
    "timeoutSeconds": ("1", "0", "-1", "x", "9" * 25),
    "allowWatchBookmarks": ("true", "x"),
    "sendInitialEvents": ("true", "false", "x"),
    "dryRun": ("All", "x", ""),
    "fieldManager": ("me", "kubectl", "", "x" * 200, "🦊", "\x00"),
    "fieldValidation": ("Strict", "Warn", "Ignore", "x"),
    "force": ("true", "false", "x"),
    "propagationPolicy": ("Foreground", "Background", "Orphan", "x"),
    "gracePeriodSeconds": ("0", "30", "-1", "x", "9" * 25),
    "orphanDependents": ("true", "x"),
    "includeObject": ("None", "Metadata", "Object", "x"),
    "pretty": ("true",),
}  # fmt: skip
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


@dataclass(frozen=True, slots=True)
class FuzzedRequest:
    number: int
    method: str
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    # Bytes that are not HTTP at all.
    raw: bytes = b""

    def wire(self) -> bytes:
        if self.raw:
            return self.raw
        lines = [b"%b %b HTTP/1.1" % (self.method.encode(), self.target), b"host: localhost"]
        lines += [b"%b: %b" % header for header in self.headers]
        lines.append(b"content-length: %d" % len(self.body))
        return b"\r\n".join(lines) + b"\r\n\r\n" + self.body


def make_request(seed: int, number: int) -> FuzzedRequest:
    """The request with this number; the same for the same seed."""
    return _Maker(random.Random(f"{seed}/{number}"), number).request()


class _Maker:
    def __init__(self, chance: random.Random, number: int) -> None:
        self._chance = chance
        self._number = number
        self._name = self._pick(NAMES)
        self._namespace = self._pick(NAMESPACES)

    def request(self) -> FuzzedRequest:
        if self._one_in(200):
            return FuzzedRequest(self._number, "", b"", (), b"", raw=self._garbage(300) + b"\r\n\r\n")
        if self._one_in(20):
            return FuzzedRequest(
                self._number, "POST", BATCH.encode(), tuple(self._headers(_MEDIA_TYPES[0])), self._batch()
            )
        kind = self._pick(KINDS)
        version = self._pick(kind.versions).version
        method = self._pick(_METHODS)
        media_type = self._pick(_PATCH_TYPES if method == "PATCH" and not self._one_in(20) else _MEDIA_TYPES)
        if method in ("POST", "PUT") and not self._one_in(10):
            media_type = self._pick(_MEDIA_TYPES[:3])
        body = b"" if method in ("GET", "HEAD") and not self._one_in(50) else self._body(kind, version, media_type)
        target = self._path(kind, version, method) + self._query(applies="apply-patch" in media_type)
        return FuzzedRequest(self._number, method, target, tuple(self._headers(media_type)), body)

    # --- batches --------------------------------------------------------------------------------------------

    def _batch(self) -> bytes:
        """Writes in one request, some of them to the same object."""
        if self._one_in(40):
            return self._deep()
        writes = [self._write() for _ in range(self._pick((1, 2, 3, 8)))]
        if self._one_in(4):
            writes += writes[:1] * self._pick((1, 2, 130))
        batch: Any = {"requests": writes}
        for _ in range(self._pick((0, 0, 0, 1, 2))):
            batch = self._mutated(batch)
        body = json.dumps(batch, ensure_ascii=self._one_in(2)).encode(errors="surrogatepass")
        return self._damaged(body) if self._one_in(20) else body

    def _write(self) -> Any:
        kind = self._pick(KINDS)
        version, method = self._pick(kind.versions).version, self._pick(_METHODS)
        media_type = self._pick(_PATCH_TYPES if method == "PATCH" and not self._one_in(20) else _MEDIA_TYPES)
        document: Any = self._document(kind, version, whole=method != "PATCH")
        if "json-patch" in media_type:
            document = [self._operation() for _ in range(self._chance.randrange(4))]
        for _ in range(self._pick((0, 0, 1, 2))):
            document = self._mutated(document)
        names = [name for name in _QUERIES if self._one_in(12)] + ["fieldManager"] * ("apply-patch" in media_type)
        return {
            "method": method,
            "path": BATCH if self._one_in(40) else unquote(self._path(kind, version, method).decode()),
            "query": {name: self._pick(_QUERIES[name]) for name in names},
            "contentType": media_type,
            "body": document,
        }

    # --- the head -------------------------------------------------------------------------------------------

    def _path(self, kind: Kind, version: str, method: str) -> bytes:
        if self._one_in(12):
            path = self._pick(_PLAIN_PATHS)
        else:
            path = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
            if kind.namespaced != self._one_in(40) and not (method == "GET" and self._one_in(3)):
                path += f"/namespaces/{self._namespace}"
            path += f"/{kind.plural}"
            if (method != "POST") != self._one_in(10):
                path += f"/{self._name}"
                if self._one_in(4):
                    path += f"/{self._pick(('status', 'binding', 'eviction', 'finalize', 'scale', 'log', ''))}"
        path = quote(path, safe="/:")
        if self._one_in(25):
            place = self._chance.randrange(len(path))
            path = (
                path[:place]
                + self._pick(("//", "%00", "%ff", "%2F", "..", "%F0%9F%A6%8A", "%", "a" * 400, ";", "+"))
                + path[place:]
            )
        return path.encode()

    def _query(self, *, applies: bool) -> bytes:
        given: list[tuple[str, str]] = []
        if applies and not self._one_in(10):
            given.append(("fieldManager", "me"))
        while self._one_in(2):
            name = self._pick(tuple(_QUERIES))
            given.append((name, self._pick(_QUERIES[name])))
        query = "&".join(f"{name}={quote(value)}" for name, value in given)
        if self._one_in(40):
            query += "&" + quote_from_bytes(self._garbage(20))
        return f"?{query}".encode() if query else b""

    def _headers(self, media_type: str) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", media_type.encode())] if media_type else []
        if self._one_in(30):
            headers = [
                (
                    b"content-type",
                    self._pick((media_type + ";charset=utf-8", media_type.upper(), ";", "a/b;c=\xff")).encode(
                        "latin-1"
                    ),
                )
            ]
        if self._one_in(2):
            headers.append((b"accept", self._pick(_ACCEPTS).encode()))
        if self._one_in(20):
            headers.append((b"user-agent", bytes(self._chance.choices(range(0x20, 0xFF), k=20)).replace(b"\x7f", b"")))
        if self._one_in(60):
            headers.append((b"authorization", self._pick((b"Bearer x", b"Basic \xff", b"bearer ", b"\xff"))))
        if self._one_in(60):
            headers.append((self._pick((b"origin", b"sec-fetch-site", b"accept-encoding", b"expect", b"impersonate-user")), self._pick((b"null", b"http://x", b"gzip", b"100-continue", b"\xe9"))))  # fmt: skip
        return headers

    # --- the body -------------------------------------------------------------------------------------------

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
        known = _known_objects().get((kind.api_version(version), kind.kind), ())
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


_CONTAINER: Final = {"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}], "limits": {"cpu": "1"}}}
_POD_SPEC: Final = {
    "containers": [_CONTAINER],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}],
    "tolerations": [{"operator": "Exists"}],
}
_TEMPLATE: Final = {"metadata": {"labels": {"app": "x"}}, "spec": {**_POD_SPEC, "restartPolicy": "Never"}}
_WORKLOAD: Final = {
    "selector": {"matchLabels": {"app": "x"}},
    "template": {"metadata": {"labels": {"app": "x"}}, "spec": _POD_SPEC},
}
_RULES: Final = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
_ROLE_REF: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"}
_SUBJECTS: Final = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "x"}]
_KNOWN: Final[dict[tuple[str, str], Any]] = {
    ("v1", "Pod"): {"spec": _POD_SPEC},
    ("v1", "Node"): {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "4"}}},
    ("v1", "Namespace"): {"metadata": {"labels": {"a": "b"}}},
    ("v1", "Event"): {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"}, "reason": "x", "type": "Normal"},
    ("v1", "ResourceQuota"): {"spec": {"hard": {"pods": "3", "count/resourceclaims.resource.k8s.io": "4"}}},
    ("v1", "ServiceAccount"): {},
    ("coordination.k8s.io/v1", "Lease"): {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}},
    ("batch/v1", "Job"): {"spec": {"completions": 2, "parallelism": 1, "template": _TEMPLATE}},
    ("scheduling.k8s.io/v1", "PriorityClass"): {"value": 5},
    ("apps/v1", "Deployment"): {"spec": _WORKLOAD},
    ("apps/v1", "DaemonSet"): {"spec": _WORKLOAD},
    ("rbac.authorization.k8s.io/v1", "Role"): {"rules": _RULES},
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): {"rules": _RULES},
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): {"roleRef": _ROLE_REF, "subjects": _SUBJECTS},
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): {"roleRef": _ROLE_REF, "subjects": _SUBJECTS},
}  # fmt: skip


@cache
def _known_objects() -> dict[tuple[str, str], list[Any]]:
    """Objects that a server may accept: recorded ones, and one of each other kind."""
    known: dict[tuple[str, str], list[Any]] = {type_: [document] for type_, document in _KNOWN.items()}
    with gzip.open(Path(__file__).parents[1] / "vectors" / "api.jsonl.gz") as lines:
        for line in lines:
            if isinstance(body := json.loads(line)["body"], dict):
                known.setdefault((str(body.get("apiVersion")), str(body.get("kind"))), []).append(body)
    return known


_type_info = cache(inspect.type_info)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _member(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


# --- the runner ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FuzzReport:
    answers: Counter[int] = field(default_factory=Counter)
    # Connections that the server closed without an answer; only bytes that are no HTTP may cause it.
    closed: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"{count} × {code}" for code, count in sorted(self.answers.items()))
        return f"{sum(self.answers.values())} answers ({codes}), {self.closed} closed, {len(self.failures)} failures"


async def fuzz_server(
    port: int,
    seed: int,
    numbers: range,
    *,
    connections: int = CONNECTIONS,
    progress: Callable[[FuzzReport], None] = lambda _: None,
) -> FuzzReport:
    """Send the requests with these numbers to a server on plain http."""
    report, rest = FuzzReport(), iter(numbers)

    async def run() -> None:
        client = _Client(port)
        for number in rest:
            await _try(client, make_request(seed, number), report, f"seed {seed}, number {number}")
            if number % 10_000 == 9_999:
                progress(report)
        await client.close()

    await asyncio.gather(*(run() for _ in range(connections)))
    healthy = FuzzedRequest(-1, "GET", b"/readyz", (), b"")
    client = _Client(port)
    if await client.ask(healthy) != 200:
        report.failures.append("the server is not ready after the last request")
    await client.close()
    return report


async def _try(client: _Client, request: FuzzedRequest, report: FuzzReport, name: str) -> None:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            code = await client.ask(request)
    except TimeoutError:
        report.failures.append(f"{name}: no answer within {ANSWER_TIMEOUT_S:.0f} s: {request}")
        await client.close()
        return
    except (OSError, asyncio.IncompleteReadError):
        await client.close()
        report.closed += 1
        if not request.raw:
            report.failures.append(f"{name}: the connection was closed without an answer: {request}")
        return
    report.answers[code] += 1
    if code == 500:
        report.failures.append(f"{name}: 500: {request}")


class _Client:
    """One connection, made again when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def close(self) -> None:
        if self._streams is not None:
            writer, self._streams = self._streams[1], None
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def ask(self, request: FuzzedRequest) -> int:
        """The status of the answer, after its body was read: 500 if a write of a batch got that. A watch is left after its head."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        writer.write(request.wire())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"http/1.1 100"):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if request.method != "HEAD" and b"\r\ncontent-length: " in head:
            length = head.split(b"\r\ncontent-length: ", 1)[1].split(b"\r\n", 1)[0]
            if b'{"status":500,' in await reader.readexactly(int(length)) and request.target == BATCH.encode():
                return 500
        elif request.method != "HEAD" or b"chunked" in head:
            await self.close()
        if b"\r\nconnection: close" in head or request.raw:
            await self.close()
        return int(head.split(b" ", 2)[1])
