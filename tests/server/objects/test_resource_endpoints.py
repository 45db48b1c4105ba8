"""Methods and paths: which are refused, and the deletion of a collection."""

from __future__ import annotations

import pytest

from tests.support.local_api import (
    CLAIMS,
    RESOURCE,
    LocalApi,
    with_api,
)
from tests.support.local_api import claim_document as claim


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", f"{RESOURCE}/resourceclaims", 405),
        ("PUT", CLAIMS, 405),
        ("GET", f"{RESOURCE}/resourceclaims/c", 404),
        ("GET", f"{RESOURCE}/namespaces/default/resourceslices", 404),
        ("GET", f"{CLAIMS}/c/binding", 404),
        ("DELETE", f"{CLAIMS}/c/status", 405),
        ("GET", "/openapi/v3/apis/nope/v1", 404),
        ("BREW", f"{CLAIMS}/c", 405),
    ],
)
@with_api
async def test_unsupported_methods_and_paths_are_refused(api: LocalApi, method: str, path: str, code: int) -> None:
    assert (await api.call(method, path)).code == code


@with_api
async def test_a_collection_is_deleted_by_selector(api: LocalApi) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.create(CLAIMS, claim(name, labels={"app": app}))
    deleted = await api.delete(CLAIMS, labelSelector="app=x")
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["a", "b"]
    assert [item["metadata"]["name"] for item in (await api.get(CLAIMS))["items"]] == ["c"]
