"""Events are deleted an hour after they were last seen."""

from __future__ import annotations

import asyncio

from tests.support.local_api import (
    LocalApi,
    with_api,
)


@with_api
async def test_expired_events_are_deleted(api: LocalApi) -> None:
    events = "/api/v1/namespaces/default/events"
    event = {"involvedObject": {"namespace": "default"}, "reason": "R", "type": "Normal"}
    await api.create(events, {"metadata": {"name": "old"}, **event})
    await asyncio.sleep(1800)
    await api.create(events, {"metadata": {"name": "new"}, **event})
    await asyncio.sleep(2000)
    assert [item["metadata"]["name"] for item in (await api.get(events))["items"]] == ["new"]
