"""Subresources that show and write a part of an object: scale, ephemeral containers, approval."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.local_api import JSON_PATCH, MERGE_PATCH, PODS, LocalApi, pod_document, with_api

STRATEGIC = "application/strategic-merge-patch+json"
LABELS = {"app": "a"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
SCALED = {
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "replicationcontrollers": "/api/v1",
}


def workload(plural: str) -> dict[str, Any]:
    selector = LABELS if plural == "replicationcontrollers" else {"matchLabels": LABELS}
    return {"metadata": {"name": "w"}, "spec": {"replicas": 2, "selector": selector, "template": TEMPLATE}}


@pytest.mark.parametrize("plural", SCALED)
def test_scale_shows_and_sets_the_replicas(plural: str) -> None:
    @with_api
    async def main(api: LocalApi) -> None:
        collection = f"{SCALED[plural]}/namespaces/default/{plural}"
        path = f"{collection}/w/scale"
        created = await api.create(collection, workload(plural))
        scale = await api.get(path)
        assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
        assert scale["status"] == {"replicas": 0, "selector": "app=a"}
        assert scale["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
        answer = await api.call("PUT", path, {**scale, "spec": {"replicas": 5}})
        assert (answer.code, answer.document["spec"]) == (200, {"replicas": 5})
        stored = await api.get(f"{collection}/w")
        assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (5, 2)
        assert (await api.call("PUT", path, scale)).code == 409
        patched = await api.call("PATCH", path, {"spec": {"replicas": 0}}, content_type=MERGE_PATCH)
        assert (patched.code, patched.document["spec"]) == (200, {})
        operation = [{"op": "add", "path": "/spec/replicas", "value": 4}]
        assert (await api.call("PATCH", path, operation, content_type=JSON_PATCH)).document["spec"] == {"replicas": 4}
        refused = await api.call("PATCH", path, {"spec": {"replicas": -1}}, content_type=MERGE_PATCH)
        assert (refused.code, refused.causes) == (422, [("FieldValueInvalid", "spec.replicas")])
        assert (await api.call("PUT", path, {**scale, "spec": {"replicas": "many"}})).code == 400
        assert (await api.get(f"{collection}/w"))["spec"]["replicas"] == 4

    main()


@with_api
async def test_a_kind_without_replicas_has_no_scale(api: LocalApi) -> None:
    answer = await api.call("GET", "/apis/apps/v1/namespaces/default/daemonsets/d/scale")
    assert (answer.code, answer.document["details"]) == (404, {})


@with_api
async def test_ephemeral_containers_are_only_added(api: LocalApi) -> None:
    path = f"{PODS}/p/ephemeralcontainers"
    debugger = {"name": "debugger", "image": "busybox", "targetContainerName": "c"}
    created = await api.call(
        "POST", PODS, {**pod_document(), "spec": {**pod_document()["spec"], "ephemeralContainers": [debugger]}}
    )
    assert (created.code, created.causes) == (422, [("FieldValueForbidden", "spec.ephemeralContainers")])
    await api.create(PODS, pod_document())
    patch = {"spec": {"ephemeralContainers": [debugger]}}
    by_update = await api.call("PATCH", f"{PODS}/p", patch, content_type=STRATEGIC)
    assert by_update.code == 422
    added = await api.call("PATCH", path, {**patch, "metadata": {"labels": {"not": "written"}}}, content_type=STRATEGIC)
    assert (added.code, added.document["spec"]["ephemeralContainers"]) == (200, [debugger])
    assert "labels" not in added.document["metadata"]
    second = {"spec": {"ephemeralContainers": [{"name": "second", "image": "busybox"}]}}
    both = await api.call("PATCH", path, second, content_type=STRATEGIC)
    assert {each["name"] for each in both.document["spec"]["ephemeralContainers"]} == {"debugger", "second"}
    for containers, field in (
        ([], "spec.ephemeralContainers"),
        (
            [*both.document["spec"]["ephemeralContainers"], {"name": "c", "image": "x"}],
            "spec.ephemeralContainers[2].name",
        ),
        ([*both.document["spec"]["ephemeralContainers"], {"name": "d"}], "spec.ephemeralContainers[2].image"),
    ):
        refused = await api.call("PATCH", path, {"spec": {"ephemeralContainers": containers}}, content_type=MERGE_PATCH)
        assert refused.code == 422
        assert field in [cause[1] for cause in refused.causes]
