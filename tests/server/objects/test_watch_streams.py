"""Watches: order, selectors, bookmarks, and revisions that are compacted. In virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.server.store.interface import HistoryLimits
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.server.claim_lists import collect, create_claims
from tests.support.etcd_apis import etcd_apis
from tests.support.local_api import (
    AS_TABLE,
    CLAIMS,
    RESOURCE,
    FixedClock,
    LocalApi,
    local_api,
    refusal,
    settle,
    with_api,
)
from tests.support.local_api import claim_document as claim


@with_api
async def test_a_watch_sends_every_change_in_order(api: LocalApi) -> None:
    start = (await api.get(CLAIMS))["metadata"]["resourceVersion"]
    watching = asyncio.ensure_future(collect(api, CLAIMS, resourceVersion=start, timeoutSeconds="10"))
    await settle()
    await api.create(CLAIMS, claim("a"))
    await api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await api.create(f"{RESOURCE}/namespaces/other/resourceclaims", claim("elsewhere"))
    await api.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"x": "y"}}})
    await api.delete(f"{CLAIMS}/a")
    events = await watching
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert all(earlier < later for earlier, later in pairwise(versions))
    assert events[0]["object"]["kind"] == "ResourceClaim"
    again = await collect(api, CLAIMS, resourceVersion=start, timeoutSeconds="1")
    assert again == events


@with_api
async def test_a_selector_turns_changes_into_added_and_deleted(api: LocalApi) -> None:
    await api.create(CLAIMS, claim("a", labels={"on": "no"}))
    watching = asyncio.ensure_future(collect(api, CLAIMS, labelSelector="on=yes", timeoutSeconds="10"))
    await settle()
    for value in ("yes", "no", "no", "yes"):
        await api.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"on": value}, "annotations": {"at": value * 2}}})
    await api.patch(f"{CLAIMS}/a", {"metadata": {"annotations": {"at": "again"}}})
    await api.delete(f"{CLAIMS}/a")
    assert [event["type"] for event in await watching] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]


@with_api
async def test_a_watch_without_a_revision_starts_with_the_current_objects(api: LocalApi) -> None:
    await create_claims(api, 700)
    events = await collect(api, CLAIMS, timeoutSeconds="1", allowWatchBookmarks="true")
    assert [event["type"] for event in events] == ["ADDED"] * 700 + ["BOOKMARK"]


@pytest.mark.parametrize("start", [{}, {"resourceVersion": "0"}], ids=["no revision", "any revision"])
@with_api
async def test_a_watch_without_initial_events_starts_with_the_next_change(api: LocalApi, start: dict[str, str]) -> None:
    await create_claims(api, 2)
    query = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "timeoutSeconds": "5", **start}
    watching = asyncio.ensure_future(collect(api, CLAIMS, **query))
    await settle()
    await api.create(CLAIMS, claim("next"))
    assert [event["object"]["metadata"]["name"] for event in await watching] == ["next"]


@with_api
async def test_initial_events_end_with_an_annotated_bookmark(api: LocalApi) -> None:
    await create_claims(api, 2)
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events = await collect(api, CLAIMS, timeoutSeconds="5", **query)
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK", "BOOKMARK"]
    assert events[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert events[2]["object"]["metadata"]["resourceVersion"] == (await api.get(CLAIMS))["metadata"]["resourceVersion"]


@with_api
async def test_bookmarks_are_sent_every_minute_and_advance_with_other_changes(api: LocalApi) -> None:
    start = (await api.get(CLAIMS))["metadata"]["resourceVersion"]
    query = {"resourceVersion": start, "allowWatchBookmarks": "true", "timeoutSeconds": "130"}
    watching = asyncio.ensure_future(collect(api, CLAIMS, **query))
    await asyncio.sleep(61)
    await api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    events = await watching
    assert [event["type"] for event in events] == ["BOOKMARK"] * 3
    versions = [int(event["object"]["metadata"]["resourceVersion"]) - int(start) for event in events]
    assert versions == [0, 1, 1]


@with_api
async def test_a_watch_from_a_future_revision_is_refused(api: LocalApi) -> None:
    current = int((await api.get(CLAIMS))["metadata"]["resourceVersion"])
    with_state = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    for options in ({}, with_state):
        (event,) = await collect(api, CLAIMS, resourceVersion=str(current + 100), timeoutSeconds="5", **options)
        assert event["type"] == "ERROR"
        assert event["object"] == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"Timeout: Too large resource version: {current + 100}, current: {current}",
            "reason": "Timeout",
            "details": {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
            "code": 504,
        }


def test_compacted_revisions_are_gone() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        limits = HistoryLimits(events_max=10)
        async with local_api(clock, FeatureGates.defaults(), limits) as api:
            page = await api.get("/api/v1/namespaces", limit="1")
            await create_claims(api, 300)
            events = await collect(api, CLAIMS, resourceVersion="2", timeoutSeconds="1")
            assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]
            gone = await refusal(api.get("/api/v1/namespaces", **{"continue": page["metadata"]["continue"]}))
            assert (gone.code, gone.document["reason"]) == (410, "Expired")
            old = await refusal(api.get(CLAIMS, resourceVersion="2", resourceVersionMatch="Exact"))
            assert old.code == 410

    run_virtual(main())


@with_api
async def test_watches_of_tables_other_versions_and_metadata(api: LocalApi) -> None:
    await create_claims(api, 1)
    table = [event async for event in api.watch(CLAIMS, accept=AS_TABLE, timeoutSeconds="1")]
    assert table[0]["object"]["rows"][0]["cells"][0] == "c000"
    old = await collect(api, CLAIMS.replace("/v1/", "/v1beta1/"), timeoutSeconds="1")
    assert old[0]["object"]["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu"
    metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    partial = [event async for event in api.watch(CLAIMS, accept=metadata, timeoutSeconds="1")]
    assert partial[0]["object"]["kind"] == "PartialObjectMetadata"


@with_api
async def test_a_watch_ends_with_the_server(api: LocalApi) -> None:
    watching = asyncio.ensure_future(collect(api, CLAIMS))
    await settle()
    assert (await api.call("GET", "/readyz")).code == 200
    api.server.end_streams()
    assert await watching == []
    assert (await api.call("GET", "/readyz")).code == 503
    assert await collect(api, CLAIMS) == []


def test_clock_jumps_do_not_change_the_order() -> None:
    async def main() -> None:
        clock = FixedClock()
        async with local_api(clock) as api:
            for days in (0, -400, 4000, -1):
                clock.time += timedelta(days=days)
                await api.create(CLAIMS, claim(f"after{days}"))
            events = await collect(api, CLAIMS, resourceVersion="5", timeoutSeconds="1")
            assert [event["object"]["metadata"]["name"] for event in events] == [
                "after0",
                "after-400",
                "after4000",
                "after-1",
            ]
            table = await api.call("GET", CLAIMS, accept=AS_TABLE)
            assert len(table.document["rows"]) == 4

    run_virtual(main())


def test_a_compacted_revision_on_etcd_is_answered_with_the_current_one() -> None:
    """Unlike our own stores, etcd does not tell which revisions it has."""

    async def main() -> None:
        async with etcd_apis(Random(1)) as ((api,), etcd):
            await create_claims(api, 20)
            current = (await api.get(CLAIMS))["metadata"]["resourceVersion"]
            etcd.compact_to(etcd.revision)
            (event,) = await collect(api, CLAIMS, resourceVersion="1", timeoutSeconds="1")
            assert event["object"]["code"] == 410
            assert event["object"]["message"] == f"too old resource version: 1 ({current})"

    run_virtual(main())
