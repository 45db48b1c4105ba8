"""Lists: pages at one revision, past revisions, and revisions that do not exist yet."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.claim_lists import create_claims, names
from tests.support.local_api import (
    CLAIMS,
    RESOURCE,
    LocalApi,
    refusal,
    settle,
    with_api,
)
from tests.support.local_api import claim_document as claim

EVERYWHERE = f"{RESOURCE}/resourceclaims"


@pytest.mark.parametrize("limit", [1, 3, 7, 20, 21, 1000])
@pytest.mark.parametrize("query", [{}, {"labelSelector": "n=1"}, {"fieldSelector": "metadata.name!=c005"}])
@with_api
async def test_pages_contain_every_object_once_at_one_revision(
    api: LocalApi, limit: int, query: dict[str, str]
) -> None:
    await create_claims(api, 20)
    whole = await api.get(EVERYWHERE, **query)
    pages = [await api.get(EVERYWHERE, limit=str(limit), **query)]
    while token := pages[-1]["metadata"].get("continue"):
        await api.patch(f"{CLAIMS}/c000", {"metadata": {"annotations": {"touched": str(len(pages))}}})
        await api.create(CLAIMS, claim(f"new{len(pages)}", labels={"n": "1"}))
        pages.append(await api.get(EVERYWHERE, limit=str(limit), **{"continue": token}, **query))
    assert [item for page in pages for item in page["items"]] == whole["items"]
    assert {page["metadata"]["resourceVersion"] for page in pages} == {whole["metadata"]["resourceVersion"]}
    assert all(len(page["items"]) == limit for page in pages[:-1])
    if not query:
        assert [page["metadata"].get("remainingItemCount", 0) for page in pages] == [
            max(20 - limit * (number + 1), 0) for number in range(len(pages))
        ]


@with_api
async def test_lists_at_past_and_future_revisions(api: LocalApi) -> None:
    await create_claims(api, 1)
    then = (await api.get(CLAIMS))["metadata"]["resourceVersion"]
    await api.delete(f"{CLAIMS}/c000")
    assert names(await api.get(CLAIMS, resourceVersion=then, resourceVersionMatch="Exact")) == ["c000"]
    assert names(await api.get(CLAIMS, resourceVersion=then)) == []
    future = str(int(then) + 2)
    waiting = asyncio.ensure_future(api.get(CLAIMS, resourceVersion=future))
    await settle()
    await api.create(CLAIMS, claim("late"))
    assert names(await waiting) == ["late"]
    too_large = await refusal(api.get(CLAIMS, resourceVersion="999"))
    assert (too_large.code, too_large.document["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
