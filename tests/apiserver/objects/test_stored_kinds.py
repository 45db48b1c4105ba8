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
async def test_both_groups_show_the_same_events(api: LocalApi) -> None:
    new, core = "/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events"
    regarding = {"kind": "Pod", "name": "p", "namespace": "default"}
    event = {"metadata": {"name": "e"}, "regarding": regarding, "note": "n", "reason": "R", "type": "Normal"}
    created = await api.create(new, {**event, "reportingController": "c", "series": {"count": 2}})
    assert (created["apiVersion"], created["regarding"], created["note"]) == ("events.k8s.io/v1", regarding, "n")
    (listed,) = (await api.get(core, fieldSelector="involvedObject.name=p"))["items"]
    assert (listed["involvedObject"], listed["message"], listed["reportingComponent"]) == (regarding, "n", "c")
    changed = await api.call("PATCH", f"{core}/e", {"message": "m", "count": 3}, content_type=MERGE_PATCH)
    assert changed.code == 200
    (shown,) = (await api.get(new, fieldSelector="regarding.name=p,reason=R"))["items"]
    assert (shown["note"], shown["deprecatedCount"]) == ("m", 3)
    assert "message" not in shown
    await api.delete(f"{new}/e")
    assert (await api.get(core))["items"] == []


@with_api
async def test_autoscalers_have_two_versions(api: LocalApi) -> None:
    path = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 80}
    created = await api.create(path.format("v1"), {"metadata": {"name": "h"}, "spec": spec})
    assert (created["apiVersion"], created["spec"]) == ("autoscaling/v1", spec)
    newer = await api.get(f"{path.format('v2')}/h")
    cpu = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    memory = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization"}}}
    assert newer["spec"]["metrics"] == [cpu]
    newer["spec"]["metrics"] = [memory, cpu]
    await api.call("PUT", f"{path.format('v2')}/h", newer)
    older = await api.get(f"{path.format('v1')}/h")
    assert older["spec"]["targetCPUUtilizationPercentage"] == 80
    await api.call("PUT", f"{path.format('v1')}/h", older)
    kept = await api.get(f"{path.format('v2')}/h")
    assert memory in kept["spec"]["metrics"]
    assert cpu in kept["spec"]["metrics"]
