"""What the API does with objects: written, changed, deleted, refused. Requests without sockets, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dralloc.apiserver.http.authentication import User
from tests.support.local_api import (
    APPLY_PATCH,
    CLAIMS,
    JSON_PATCH,
    PODS,
    RESOURCE,
    LocalApi,
    refusal,
    settle,
    with_api,
)
from tests.support.local_api import claim_document as claim
from tests.support.local_api import pod_document as pod
from tests.support.workloads import job

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def owned_by(owner: dict[str, Any], kind: str = "Pod", api_version: str = "v1", **more: Any) -> list[dict[str, Any]]:
    metadata = owner["metadata"]
    return [{"apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], **more}]


# --- writing ------------------------------------------------------------------------------------------------


@with_api
async def test_a_generated_name_is_tried_again_when_it_is_taken(api: LocalApi) -> None:
    names = {(await api.create(CLAIMS, claim("", generateName="g-")))["metadata"]["name"] for _ in range(50)}
    assert len(names) == 50
    assert all(name.startswith("g-") and len(name) == 7 for name in names)


@with_api
async def test_a_dry_run_stores_nothing_and_answers_like_the_real_thing(api: LocalApi) -> None:
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
async def test_an_update_that_changes_nothing_writes_nothing(api: LocalApi) -> None:
    created = await api.create(CLAIMS, claim())
    assert (await api.update(f"{CLAIMS}/c", created)) == created
    assert (await api.patch(f"{CLAIMS}/c", {"metadata": {"name": "c"}})) == created


@with_api
async def test_concurrent_patches_all_count_and_concurrent_updates_of_one_revision_do_not(api: LocalApi) -> None:
    created = await api.create(CLAIMS, claim())
    await asyncio.gather(*(api.patch(f"{CLAIMS}/c", {"metadata": {"labels": {f"l{n}": "x"}}}) for n in range(10)))
    assert len((await api.get(f"{CLAIMS}/c"))["metadata"]["labels"]) == 10
    answers = [await api.call("PUT", f"{CLAIMS}/c", created) for _ in range(2)]
    assert [answer.code for answer in answers] == [409, 409]


@with_api
async def test_a_json_patch_can_insist_on_a_revision(api: LocalApi) -> None:
    created = await api.create(CLAIMS, claim())
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": created["metadata"]["resourceVersion"]}
    label = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    await api.patch(f"{CLAIMS}/c", [test, label], content_type=JSON_PATCH)
    again = await api.call("PATCH", f"{CLAIMS}/c", [test, label], content_type=JSON_PATCH)
    assert again.code == 422


@with_api
async def test_a_taint_rule_of_v1_is_not_replaced_unseen(api: LocalApi) -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}
    path = f"{RESOURCE}/devicetaintrules"
    await api.create(path, rule)
    assert (await refusal(api.update(f"{path}/r", rule))).causes == [("FieldValueInvalid", "metadata.resourceVersion")]
    assert (await api.patch(f"{path}/r", {"spec": {"taint": {"value": "v"}}}))["metadata"]["generation"] == 2
    assert (await api.delete(f"{path}/r"))["kind"] == "Status"


@with_api
async def test_who_names_itself_owns_what_it_creates(api: LocalApi) -> None:
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
async def test_applying_the_same_again_writes_nothing(api: LocalApi) -> None:
    applied = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim(labels={"a": "1"})}
    first = await api.patch(f"{CLAIMS}/c", applied, content_type=APPLY_PATCH, fieldManager="me")
    await asyncio.sleep(60)
    assert await api.patch(f"{CLAIMS}/c", applied, content_type=APPLY_PATCH, fieldManager="me") == first


@with_api
async def test_unknown_fields_are_told_refused_or_passed_over(api: LocalApi) -> None:
    strange = claim() | {"nope": 1}
    assert (await api.call("POST", CLAIMS, strange, dryRun="All")).warnings == ('299 - "unknown field \\"nope\\""',)
    assert (await api.call("POST", CLAIMS, strange, dryRun="All", fieldValidation="Strict")).code == 400
    assert (await api.call("POST", CLAIMS, strange, dryRun="All", fieldValidation="Ignore")).warnings == ()
    assert (await api.call("POST", CLAIMS, strange, dryRun="All", fieldValidation="Perhaps")).code == 422


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"nodeSelecter": {"a": "b"}}, "spec.nodeSelecter"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c", "shared": 1}]}, "spec.resourceClaims[0].shared"),
        ({"containers": [{"name": "c", "image": "x", "comand": []}]}, "spec.containers[0].comand"),
        (
            {"initContainers": [{"name": "i", "image": "x", "resources": {"claim": []}}]},
            "spec.initContainers[0].resources.claim",
        ),
        ({"volumes": [{"name": "v", "hostPaht": {}}]}, "spec.volumes[0].hostPaht"),
        ({"tolerations": [{"key": "k", "operater": "Exists"}]}, "spec.tolerations[0].operater"),
        ({"serviceAccountName": "s", "volumes": [{"name": "v", "hostPath": {"notReadByUs": {}}}]}, ""),
    ],
)
@with_api
async def test_misspelt_fields_of_pods_are_told_or_refused(api: LocalApi, spec: dict[str, Any], told: str) -> None:
    sent = pod()
    sent["spec"] |= spec
    warned = await api.call("POST", PODS, sent, dryRun="All")
    assert (warned.code, warned.warnings) == (201, (f'299 - "unknown field \\"{told}\\""',) if told else ())
    strict = await api.call("POST", PODS, sent, dryRun="All", fieldValidation="Strict")
    assert strict.code == (400 if told else 201)
    assert (await api.call("POST", PODS, sent, dryRun="All", fieldValidation="Ignore")).warnings == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sepc": {}}, "sepc"),
        ({"metadata": {"name": "j", "lables": {"a": "b"}}}, "metadata.lables"),
        ({"spec": {"paralelism": 2}}, "spec.paralelism"),
        ({"spec": {"template": {"metadata": {"lables": {}}}}}, "spec.template.metadata.lables"),
        ({"spec": {"podFailurePolicy": {"rules": []}, "scheduling": {}}}, ""),
    ],
)
@with_api
async def test_misspelt_fields_of_jobs_are_told_wherever_they_stand(
    api: LocalApi, changes: dict[str, Any], told: str
) -> None:
    sent = job("j")
    template = {**sent["spec"]["template"], **changes.get("spec", {}).get("template", {})}
    spec = {**sent["spec"], **changes.get("spec", {}), "template": template}
    warned = await api.call("POST", JOBS, {**sent, **changes, "spec": spec}, dryRun="All")
    assert (warned.code, warned.warnings) == (201, (f'299 - "unknown field \\"{told}\\""',) if told else ())


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
async def test_what_cannot_be_done_is_refused(api: LocalApi, method: str, path: str, code: int) -> None:
    assert (await api.call(method, path)).code == code


@pytest.mark.parametrize("body", ["{", "[]", "null", '"text"', '{"metadata": 5}', '{"metadata":{"name":7}}', "\x00"])
@with_api
async def test_bodies_that_are_no_objects_are_refused(api: LocalApi, body: str) -> None:
    assert (await api.call("POST", CLAIMS, body)).code == 400
    assert (await api.call("PATCH", f"{CLAIMS}/c", body, content_type=APPLY_PATCH, fieldManager="m")).code in (400, 404)


# --- namespaces ---------------------------------------------------------------------------------------------


@with_api
async def test_a_namespace_goes_when_everything_in_it_is_gone(api: LocalApi) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    there = f"{RESOURCE}/namespaces/n/resourceclaims"
    await api.create(there, claim("free"))
    await api.create(there, claim("held", finalizers=["example.com/hold"]))
    await api.create("/api/v1/namespaces/n/pods", pod("p"))
    assert (await api.delete("/api/v1/namespaces/n"))["status"]["phase"] == "Terminating"
    await settle()
    assert [item["metadata"]["name"] for item in (await api.get(there))["items"]] == ["held"]
    new = await refusal(api.create(there, claim("new")))
    assert (new.code, new.causes) == (403, [("NamespaceTerminating", "metadata.namespace")])
    await api.patch(f"{there}/held", {"metadata": {"finalizers": None}})
    await settle()
    assert not await api.exists("/api/v1/namespaces/n")


@with_api
async def test_a_namespace_waits_for_others_that_hold_it(api: LocalApi) -> None:
    held = {"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes", "example.com/other"]}}
    await api.create("/api/v1/namespaces", held)
    await api.delete("/api/v1/namespaces/n")
    await settle()
    assert (await api.get("/api/v1/namespaces/n"))["spec"]["finalizers"] == ["example.com/other"]
    await api.update("/api/v1/namespaces/n/finalize", {"spec": {"finalizers": []}})
    assert not await api.exists("/api/v1/namespaces/n")


# --- dependents ---------------------------------------------------------------------------------------------


@with_api
async def test_dependents_go_with_their_last_owner(api: LocalApi) -> None:
    first, second = await api.create(PODS, pod("first")), await api.create(PODS, pod("second"))
    await api.create(CLAIMS, claim("of-one", ownerReferences=owned_by(first)))
    await api.create(CLAIMS, claim("of-two", ownerReferences=[*owned_by(first), *owned_by(second)]))
    await api.delete(f"{PODS}/first")
    await settle()
    assert not await api.exists(f"{CLAIMS}/of-one")
    assert (await api.get(f"{CLAIMS}/of-two"))["metadata"]["ownerReferences"] == owned_by(second)
    await api.delete(f"{PODS}/second")
    await settle()
    assert not await api.exists(f"{CLAIMS}/of-two")


@with_api
async def test_what_is_owned_by_nothing_that_exists_goes(api: LocalApi) -> None:
    owner = await api.create(PODS, pod("p"))
    await api.delete(f"{PODS}/p")
    again = await api.create(PODS, pod("p"))
    await api.create(CLAIMS, claim("of-the-old", ownerReferences=owned_by(owner)))
    await api.create(CLAIMS, claim("of-the-new", ownerReferences=owned_by(again)))
    elsewhere = owned_by(owner, "StatefulSet", "apps/v1")
    await api.create(CLAIMS, claim("of-a-kind-we-do-not-serve", ownerReferences=elsewhere))
    await settle()
    kept = {item["metadata"]["name"] for item in (await api.get(CLAIMS))["items"]}
    assert kept == {"of-the-new", "of-a-kind-we-do-not-serve"}


@with_api
async def test_orphans_stay(api: LocalApi) -> None:
    owner = await api.create(PODS, pod("p"))
    await api.create(CLAIMS, claim(ownerReferences=owned_by(owner)))
    await api.delete(f"{PODS}/p", {"propagationPolicy": "Orphan"})
    await settle()
    assert not await api.exists(f"{PODS}/p")
    assert (
        "ownerReferences" not in (await api.get(f"{CLAIMS}/c"))["metadata"]
        or not ((await api.get(f"{CLAIMS}/c"))["metadata"]["ownerReferences"])
    )


@with_api
async def test_in_the_foreground_the_owner_waits_for_what_blocks_it(api: LocalApi) -> None:
    owner = await api.create(PODS, pod("p"))
    references = owned_by(owner, blockOwnerDeletion=True)
    await api.create(CLAIMS, claim(ownerReferences=references, finalizers=["example.com/hold"]))
    await api.delete(f"{PODS}/p", {"propagationPolicy": "Foreground"})
    await settle()
    assert await api.exists(f"{PODS}/p")
    assert (await api.get(f"{CLAIMS}/c"))["metadata"]["deletionTimestamp"]
    await api.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})
    await settle()
    assert not await api.exists(f"{CLAIMS}/c")
    assert not await api.exists(f"{PODS}/p")


@with_api
async def test_a_collection_is_deleted_by_selector(api: LocalApi) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.create(CLAIMS, claim(name, labels={"app": app}))
    deleted = await api.delete(CLAIMS, labelSelector="app=x")
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["a", "b"]
    assert [item["metadata"]["name"] for item in (await api.get(CLAIMS))["items"]] == ["c"]


# --- pods and nodes -----------------------------------------------------------------------------------------


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
async def test_a_binding_can_name_its_pod_itself(api: LocalApi) -> None:
    await api.create(PODS, pod("p"))
    await api.create("/api/v1/namespaces/default/bindings", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert (await api.get(f"{PODS}/p"))["spec"]["nodeName"] == "n"


@with_api
async def test_a_node_publishes_its_own_slices_and_allocates_nothing(api: LocalApi) -> None:
    node = LocalApi(api.server, User(name="system:node:n1", groups=("system:nodes",)))
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}

    def slice_of(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"driver": "d.example.com", "nodeName": name, "pool": pool}}

    slices = f"{RESOURCE}/resourceslices"
    await node.create(slices, slice_of("n1"))
    assert (await refusal(node.create(slices, slice_of("n2")))).code == 403
    await api.create(slices, slice_of("n2"))
    assert (await refusal(node.delete(f"{slices}/n2"))).code == 403
    assert (await refusal(node.delete(slices))).code == 403
    await api.create(CLAIMS, claim())
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
    allocation = {"status": {"allocation": {"devices": {"results": [result]}}}}
    refused = await refusal(node.patch(f"{CLAIMS}/c/status", allocation))
    assert refused.causes == [("FieldValueForbidden", "status.allocation")]


@with_api
async def test_old_events_are_deleted(api: LocalApi) -> None:
    events = "/api/v1/namespaces/default/events"
    event = {"involvedObject": {"namespace": "default"}, "reason": "R", "type": "Normal"}
    await api.create(events, {"metadata": {"name": "old"}, **event})
    await asyncio.sleep(1800)
    await api.create(events, {"metadata": {"name": "new"}, **event})
    await asyncio.sleep(2000)
    assert [item["metadata"]["name"] for item in (await api.get(events))["items"]] == ["new"]
