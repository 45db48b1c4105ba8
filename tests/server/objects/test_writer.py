"""Writes: creates, updates, patches and dry runs. Requests without sockets, in virtual time."""

from __future__ import annotations

import asyncio

from tests.support.local_api import (
    APPLY_PATCH,
    CLAIMS,
    JSON_PATCH,
    RESOURCE,
    LocalApi,
    refusal,
    with_api,
)
from tests.support.local_api import claim_document as claim


@with_api
async def test_generated_names_are_unique(api: LocalApi) -> None:
    names = {(await api.create(CLAIMS, claim("", generateName="g-")))["metadata"]["name"] for _ in range(50)}
    assert len(names) == 50
    assert all(name.startswith("g-") and len(name) == 7 for name in names)


@with_api
async def test_a_dry_run_stores_nothing_and_responds_like_the_write(api: LocalApi) -> None:
    before = (await api.get(CLAIMS))["metadata"]["resourceVersion"]
    dry = await api.create(CLAIMS, claim(), dryRun="All")
    assert "resourceVersion" not in dry["metadata"]
    assert not await api.exists(f"{CLAIMS}/c")
    await api.create(CLAIMS, claim())
    assert (await refusal(api.create(CLAIMS, claim(), dryRun="All"))).code == 409
    labelled = await api.patch(f"{CLAIMS}/c", {"metadata": {"labels": {"a": "b"}}}, dryRun="All")
    assert labelled["metadata"]["labels"] == {"a": "b"}
    await api.delete(f"{CLAIMS}/c", dryRun="All")
    assert "labels" not in (await api.get(f"{CLAIMS}/c"))["metadata"]
    assert int((await api.get(CLAIMS))["metadata"]["resourceVersion"]) == int(before) + 1


@with_api
async def test_a_noop_update_writes_nothing(api: LocalApi) -> None:
    created = await api.create(CLAIMS, claim())
    assert (await api.update(f"{CLAIMS}/c", created)) == created
    assert (await api.patch(f"{CLAIMS}/c", {"metadata": {"name": "c"}})) == created


@with_api
async def test_concurrent_patches_are_retried_and_concurrent_updates_conflict(api: LocalApi) -> None:
    created = await api.create(CLAIMS, claim())
    await asyncio.gather(*(api.patch(f"{CLAIMS}/c", {"metadata": {"labels": {f"l{n}": "x"}}}) for n in range(10)))
    assert len((await api.get(f"{CLAIMS}/c"))["metadata"]["labels"]) == 10
    answers = [await api.call("PUT", f"{CLAIMS}/c", created) for _ in range(2)]
    assert [answer.code for answer in answers] == [409, 409]


@with_api
async def test_a_json_patch_can_test_the_resource_version(api: LocalApi) -> None:
    created = await api.create(CLAIMS, claim())
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": created["metadata"]["resourceVersion"]}
    label = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    await api.patch(f"{CLAIMS}/c", [test, label], content_type=JSON_PATCH)
    again = await api.call("PATCH", f"{CLAIMS}/c", [test, label], content_type=JSON_PATCH)
    assert again.code == 422


@with_api
async def test_an_update_of_a_v1_taint_rule_needs_a_resource_version(api: LocalApi) -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}
    path = f"{RESOURCE}/devicetaintrules"
    await api.create(path, rule)
    assert (await refusal(api.update(f"{path}/r", rule))).causes == [("FieldValueInvalid", "metadata.resourceVersion")]
    assert (await api.patch(f"{path}/r", {"spec": {"taint": {"value": "v"}}}))["metadata"]["generation"] == 2
    assert (await api.delete(f"{path}/r"))["kind"] == "Status"


@with_api
async def test_a_named_manager_owns_what_it_creates(api: LocalApi) -> None:
    named = await api.create(CLAIMS, claim("named", labels={"a": "1"}), fieldManager="me")
    assert [entry["manager"] for entry in named["metadata"]["managedFields"]] == ["me"]
    assert "managedFields" not in (await api.create(CLAIMS, claim("nameless")))["metadata"]
    type_ = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    for name, owner in (("named", "me"), ("nameless", "before-first-apply")):
        applied = {**type_, "metadata": {"name": name, "labels": {"a": "2"}}}
        if name == "nameless":
            await api.patch(f"{CLAIMS}/nameless", {"metadata": {"labels": {"a": "1"}}})
        conflict = await api.call("PATCH", f"{CLAIMS}/{name}", applied, content_type=APPLY_PATCH, fieldManager="you")
        assert conflict.causes == [("FieldManagerConflict", ".metadata.labels.a")]
        assert owner in conflict.document["message"]


@with_api
async def test_a_repeated_apply_writes_nothing(api: LocalApi) -> None:
    applied = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim(labels={"a": "1"})}
    first = await api.patch(f"{CLAIMS}/c", applied, content_type=APPLY_PATCH, fieldManager="me")
    await asyncio.sleep(60)
    assert await api.patch(f"{CLAIMS}/c", applied, content_type=APPLY_PATCH, fieldManager="me") == first
