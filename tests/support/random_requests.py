"""Random requests to an API server, valid, nearly valid and hostile. A request is a function of its seed and number, so that it can be repeated alone."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, quote_from_bytes, unquote

from dralloc.kube.kind import Kind
from dralloc.kube.registry import KINDS
from tests.support.random_bodies import RandomBodies

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
    return _RequestMaker(random.Random(f"{seed}/{number}"), number).request()


class _RequestMaker(RandomBodies):
    def __init__(self, chance: random.Random, number: int) -> None:
        super().__init__(chance)
        self._number = number

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
