"""Lists and watches: pages, revisions, selectors, bookmarks, and what is told when the past is gone. In virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.simulator.virtual_time import VirtualClock, run_virtual
from dralloc.store.interface import HistoryLimits
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

EVERYWHERE = f"{RESOURCE}/resourceclaims"


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def create_claims(api: LocalApi, count: int, **labels: str) -> None:
    for number in range(count):
        await api.create(CLAIMS, claim(f"c{number:03}", labels={"n": str(number % 3), **labels}))


async def collect(api: LocalApi, path: str, **query: str) -> list[Any]:
    """All events of a watch that ends by itself."""
    return [event async for event in api.watch(path, **query)]


# --- lists --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 7, 20, 21, 1000])
@pytest.mark.parametrize("query", [{}, {"labelSelector": "n=1"}, {"fieldSelector": "metadata.name!=c005"}])
@with_api
async def test_pages_hold_everything_once_at_one_revision(api: LocalApi, limit: int, query: dict[str, str]) -> None:
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
async def test_a_list_can_be_of_the_past_and_waits_for_the_near_future(api: LocalApi) -> None:
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


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"continue": "nonsense"}, 400),
        ({"continue": "e30"}, 400),
        ({"limit": "many"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "1", "resourceVersionMatch": "Roughly"}, 422),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422),
        ({"sendInitialEvents": "true"}, 422),
        ({"resourceVersion": "-1"}, 400),
        ({"watch": "1", "resourceVersionMatch": "Exact"}, 422),
        ({"watch": "1", "sendInitialEvents": "true"}, 422),
        ({"watch": "1", "resourceVersion": "x"}, 400),
        ({"labelSelector": "a=b,"}, 400),
        ({"fieldSelector": "spec.nope=1"}, 400),
    ],
)
@with_api
async def test_options_that_make_no_sense_are_refused(api: LocalApi, query: dict[str, str], code: int) -> None:
    assert (await api.call("GET", CLAIMS, **query)).code == code


@pytest.mark.slow
@with_api
async def test_a_long_list_comes_in_pieces_and_is_whole(api: LocalApi) -> None:
    await create_claims(api, 1203)
    assert len(names(await api.get(EVERYWHERE))) == 1203
    table = await api.call("GET", EVERYWHERE, accept=AS_TABLE)
    assert [row["cells"][0] for row in table.document["rows"]] == sorted(f"c{number:03}" for number in range(1203))
    metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    partial = (await api.call("GET", EVERYWHERE, accept=metadata)).document
    assert (partial["kind"], len(partial["items"]), "spec" in partial["items"][0]) == (
        "PartialObjectMetadataList",
        1203,
        False,
    )


@with_api
async def test_rows_come_with_as_much_of_the_object_as_is_asked_for(api: LocalApi) -> None:
    await create_claims(api, 1)
    for include, want in (("", "PartialObjectMetadata"), ("Object", "ResourceClaim"), ("None", None)):
        table = (await api.call("GET", CLAIMS, accept=AS_TABLE, includeObject=include)).document
        assert (table["rows"][0].get("object") or {}).get("kind") == want
    assert (await api.call("GET", CLAIMS, accept=AS_TABLE, includeObject="Half")).code == 400
    assert (await api.call("GET", CLAIMS, accept="application/vnd.kubernetes.protobuf")).code == 406


@with_api
async def test_answers_come_in_yaml_to_those_who_want_it(api: LocalApi) -> None:
    await create_claims(api, 1)
    shown = await api.call("GET", f"{CLAIMS}/c000", accept="application/yaml")
    assert shown.document.startswith("kind: ResourceClaim\napiVersion: resource.k8s.io/v1\n")
    assert "kind: Status" in (await api.call("GET", f"{CLAIMS}/nope", accept="application/yaml")).document
    both = "application/json, application/yaml"
    assert (await api.call("GET", f"{CLAIMS}/c000", accept=both)).document["kind"] == "ResourceClaim"


# --- watches ------------------------------------------------------------------------------------------------


@with_api
async def test_a_watch_tells_every_change_in_order(api: LocalApi) -> None:
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
async def test_a_selector_makes_objects_come_and_go(api: LocalApi) -> None:
    await api.create(CLAIMS, claim("a", labels={"on": "no"}))
    watching = asyncio.ensure_future(collect(api, CLAIMS, labelSelector="on=yes", timeoutSeconds="10"))
    await settle()
    for value in ("yes", "no", "no", "yes"):
        await api.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"on": value}, "annotations": {"at": value * 2}}})
    await api.patch(f"{CLAIMS}/a", {"metadata": {"annotations": {"at": "again"}}})
    await api.delete(f"{CLAIMS}/a")
    assert [event["type"] for event in await watching] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]


@with_api
async def test_a_watch_without_a_revision_begins_with_what_is_there(api: LocalApi) -> None:
    await create_claims(api, 700)
    events = await collect(api, CLAIMS, timeoutSeconds="1", allowWatchBookmarks="true")
    assert [event["type"] for event in events] == ["ADDED"] * 700 + ["BOOKMARK"]


@with_api
async def test_initial_events_end_with_a_bookmark_that_says_so(api: LocalApi) -> None:
    await create_claims(api, 2)
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events = await collect(api, CLAIMS, timeoutSeconds="5", **query)
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK", "BOOKMARK"]
    assert events[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert events[2]["object"]["metadata"]["resourceVersion"] == (await api.get(CLAIMS))["metadata"]["resourceVersion"]


@with_api
async def test_bookmarks_come_every_minute_and_move_on_with_changes_elsewhere(api: LocalApi) -> None:
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
async def test_a_watch_of_the_future_is_silent_until_it_comes(api: LocalApi) -> None:
    current = int((await api.get(CLAIMS))["metadata"]["resourceVersion"])
    watching = asyncio.ensure_future(collect(api, CLAIMS, resourceVersion=str(current + 1), timeoutSeconds="5"))
    await settle()
    await api.create(CLAIMS, claim("now"))
    await api.create(CLAIMS, claim("then"))
    assert [event["object"]["metadata"]["name"] for event in await watching] == ["then"]


def test_who_comes_back_too_late_is_told_to_read_again() -> None:
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
async def test_a_watch_can_be_of_tables_of_other_versions_and_of_metadata(api: LocalApi) -> None:
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


def test_a_clock_that_jumps_changes_no_order() -> None:
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


# --- about the server ---------------------------------------------------------------------------------------


@with_api
async def test_requests_are_counted(api: LocalApi) -> None:
    await create_claims(api, 3)
    await api.call("GET", f"{CLAIMS}/nope")
    await collect(api, CLAIMS, timeoutSeconds="1")
    text = (await api.call("GET", "/metrics")).document
    scope = 'group="resource.k8s.io",version="v1",resource="resourceclaims",subresource=""'
    assert (
        f'apiserver_request_total{{verb="POST",dry_run="",{scope},scope="namespace",component="apiserver",code="201"}} 3\n'
        in text
    )
    assert (
        f'apiserver_request_total{{verb="GET",dry_run="",{scope},scope="resource",component="apiserver",code="404"}} 1\n'
        in text
    )
    assert (
        f'apiserver_request_total{{verb="WATCH",dry_run="",{scope},scope="namespace",component="apiserver",code="200"}} 1\n'
        in text
    )
    assert 'apiserver_request_duration_seconds_count{verb="POST"' in text
    assert 'apiserver_longrunning_requests{verb="WATCH"} 0\n' in text
