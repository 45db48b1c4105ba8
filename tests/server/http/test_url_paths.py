"""Parsed URL paths."""

from __future__ import annotations

import pytest

from dralloc.server.http.url_paths import GroupPath, Path, PlainPath, ResourcePath, VersionPath, parse_path

CLAIMS = ("resource.k8s.io", "v1", "resourceclaims")

CASES: list[tuple[str, Path]] = [
    ("/", PlainPath("/")),
    ("", PlainPath("/")),
    ("/healthz", PlainPath("/healthz")),
    ("/version/", PlainPath("/version")),
    ("/api", PlainPath("/api")),
    ("/apis/", PlainPath("/apis")),
    ("/openapi/v3/apis/resource.k8s.io/v1", PlainPath("/openapi/v3/apis/resource.k8s.io/v1")),
    ("/api/v1", VersionPath("", "v1")),
    ("/apis/resource.k8s.io", GroupPath("resource.k8s.io")),
    ("/apis/resource.k8s.io/v1beta1", VersionPath("resource.k8s.io", "v1beta1")),
    ("/apis/resource.k8s.io/v1/resourceslices", ResourcePath("resource.k8s.io", "v1", "resourceslices")),
    ("/apis/resource.k8s.io/v1/resourceslices/s", ResourcePath("resource.k8s.io", "v1", "resourceslices", name="s")),
    ("/apis/resource.k8s.io/v1/namespaces/n/resourceclaims", ResourcePath(*CLAIMS, "n")),
    ("/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c", ResourcePath(*CLAIMS, "n", "c")),
    ("/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c/status", ResourcePath(*CLAIMS, "n", "c", "status")),
    ("/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/a%2Fb", ResourcePath(*CLAIMS, "n", "a%2Fb")),
    ("/api/v1/namespaces", ResourcePath("", "v1", "namespaces")),
    ("/api/v1/namespaces/n", ResourcePath("", "v1", "namespaces", name="n")),
    ("/api/v1/namespaces/n/status", ResourcePath("", "v1", "namespaces", name="n", subresource="status")),
    ("/api/v1/namespaces/n/finalize", ResourcePath("", "v1", "namespaces", name="n", subresource="finalize")),
    ("/api/v1/namespaces/n/pods/p/binding", ResourcePath("", "v1", "pods", "n", "p", "binding")),
    ("/api/v1/namespaces/n/pods/p/proxy/a/b", ResourcePath("", "v1", "pods", "n", "p", "proxy", tail="a/b")),
    ("/api/v1/namespaces//pods", ResourcePath("", "v1", "pods")),
    ("/api/v1//pods", ResourcePath("", "v1", "", name="pods")),
    ("//api/v1/pods/", ResourcePath("", "v1", "pods")),
    ("/api/v1/watch/pods", ResourcePath("", "v1", "pods", verb="watch")),
    ("/api/v1/watch/namespaces/n/pods/p", ResourcePath("", "v1", "pods", "n", "p", verb="watch")),
    ("/api/v1/watch", ResourcePath("", "v1", "watch")),
]


@pytest.mark.parametrize(("path", "want"), CASES, ids=[path or "nothing" for path, _ in CASES])
def test_parse_path(path: str, want: Path) -> None:
    assert parse_path(path) == want
