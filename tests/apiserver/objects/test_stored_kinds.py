"""Kinds that are only stored: every one is created, read, changed, watched and deleted as in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.api.registry import KINDS, Kind
from dralloc.api.stored_kinds import STORED_KINDS
from tests.support.local_api import MERGE_PATCH, LocalApi, with_api

STORED = [kind for kind in KINDS if any((row.group, row.kind) == (kind.group, kind.kind) for row in STORED_KINDS)]


def path_of(kind: Kind) -> str:
    prefix = f"/apis/{kind.group}" if kind.group else "/api"
    namespace = "/namespaces/default" if kind.namespaced else ""
    return f"{prefix}/{kind.hub_version}{namespace}/{kind.plural}"


def test_every_row_is_served() -> None:
    assert len(STORED) == len(STORED_KINDS)


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.resource)
def test_an_object_is_created_changed_watched_and_deleted(kind: Kind) -> None:
    @with_api
    async def main(api: LocalApi) -> None:
        path, row = path_of(kind), next(row for row in STORED_KINDS if (row.group, row.kind) == (kind.group, kind.kind))
        member = row.members[0]
        sent: dict[str, Any] = {
            "metadata": {"name": "a", "labels": {"x": "1"}},
            member: {"any": ["thing", 1, {"b": 0.5}]},
        }
        created = await api.create(path, sent)
        assert created[member] == sent[member]
        changed = await api.call("PATCH", f"{path}/a", {member: {"other": True}}, content_type=MERGE_PATCH)
        assert (changed.code, changed.document[member]) == (200, {**sent[member], "other": True})
        if row.has_generation:
            assert (created["metadata"]["generation"], changed.document["metadata"]["generation"]) == (1, 2)
        if "status" in row.members:
            ignored = await api.call("PATCH", f"{path}/a", {"status": {"s": 1}}, content_type=MERGE_PATCH)
            assert "s" not in ignored.document.get("status", {})
            written = await api.call("PATCH", f"{path}/a/status", {"status": {"s": 1}}, content_type=MERGE_PATCH)
            assert written.document["status"] == {"s": 1}
        listed = await api.get(path, labelSelector="x=1")
        assert (listed["kind"], [item["metadata"]["name"] for item in listed["items"]]) == (kind.list_kind, ["a"])
        await api.delete(f"{path}/a")
        assert (await api.get(path))["items"] == []
        refused = await api.call("POST", path, {"metadata": {"name": "Not A Name"}})
        assert (refused.code, refused.causes[0][1]) == (422, "metadata.name")

    main()


@with_api
async def test_events_of_both_groups_are_kept_apart(api: LocalApi) -> None:
    regarding = {"kind": "Pod", "name": "p", "namespace": "default"}
    event = {"metadata": {"name": "e"}, "regarding": regarding, "note": "n", "reason": "R", "type": "Normal"}
    await api.create("/apis/events.k8s.io/v1/namespaces/default/events", event)
    assert (await api.get("/api/v1/namespaces/default/events"))["items"] == []
