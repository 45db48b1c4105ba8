"""Binding and eviction of pods."""

from __future__ import annotations

from typing import Any

from tests.support.local_api import (
    PODS,
    LocalApi,
    refusal,
    with_api,
)
from tests.support.local_api import pod_document as pod


@with_api
async def test_a_pod_is_bound_once_and_evicted(api: LocalApi) -> None:
    created = await api.create(PODS, pod("p"))
    binding: dict[str, Any] = {"metadata": {"name": "p", "uid": "other"}, "target": {"kind": "Node", "name": "n"}}
    assert (await refusal(api.create(f"{PODS}/p/binding", binding))).code == 409
    binding["metadata"] = {"uid": created["metadata"]["uid"], "annotations": {"why": "because"}}
    await api.create(f"{PODS}/p/binding", binding)
    bound = await api.get(f"{PODS}/p")
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("n", {"why": "because"})
    assert (bound["status"]["conditions"][0]["type"], bound["status"]["conditions"][0]["status"]) == (
        "PodScheduled",
        "True",
    )
    assert (await refusal(api.create(f"{PODS}/p/binding", {"target": {"name": "m"}}))).code == 409
    assert (await refusal(api.create(f"{PODS}/p/binding", {}))).code == 422
    await api.create(f"{PODS}/p/eviction", {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 5}})
    assert (await api.get(f"{PODS}/p"))["metadata"]["deletionGracePeriodSeconds"] == 5


@with_api
async def test_a_binding_can_name_its_pod_in_the_body(api: LocalApi) -> None:
    await api.create(PODS, pod("p"))
    await api.create("/api/v1/namespaces/default/bindings", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert (await api.get(f"{PODS}/p"))["spec"]["nodeName"] == "n"


@with_api
async def test_a_binding_of_another_version_of_the_pod_is_refused(api: LocalApi) -> None:
    created = await api.create(PODS, pod("p"))
    seen = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "target": {"name": "n"}}
    now = await api.patch(f"{PODS}/p", {"metadata": {"labels": {"changed": "true"}}})
    refused = await refusal(api.create(f"{PODS}/p/binding", seen))
    assert (refused.code, "ResourceVersion in precondition" in refused.document["message"]) == (409, True)
    seen["metadata"] = {"resourceVersion": now["metadata"]["resourceVersion"]}
    await api.create(f"{PODS}/p/binding", seen)


@with_api
async def test_a_dry_run_of_an_eviction_or_of_finalizers_changes_nothing(api: LocalApi) -> None:
    await api.create(PODS, pod("p"))
    await api.create(f"{PODS}/p/eviction", {"metadata": {"name": "p"}}, dryRun="All")
    assert await api.exists(f"{PODS}/p")
    await api.update("/api/v1/namespaces/default/finalize", {"spec": {"finalizers": []}}, dryRun="All")
    assert (await api.get("/api/v1/namespaces/default"))["spec"]["finalizers"] == ["kubernetes"]
