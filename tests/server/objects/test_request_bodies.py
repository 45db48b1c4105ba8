"""Request bodies: unknown fields are warned about or refused, and so is what is not an object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.local_api import (
    APPLY_PATCH,
    CLAIMS,
    MERGE_PATCH,
    PODS,
    LocalApi,
    with_api,
)
from tests.support.local_api import claim_document as claim
from tests.support.local_api import pod_document as pod
from tests.support.workloads import job

JOBS = "/apis/batch/v1/namespaces/default/jobs"


@with_api
async def test_unknown_fields_are_warned_about_refused_or_ignored(api: LocalApi) -> None:
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
        ({"volumes": [{"name": "v", "hostPath": {"paht": {}}}]}, "spec.volumes[0].hostPath.paht"),
        ({"serviceAccountName": "s", "volumes": [{"name": "v", "hostPath": {"path": "/read/by/no/part/of/ours"}}]}, ""),
    ],
)
@with_api
async def test_misspelt_fields_of_pods_are_warned_about_or_refused(
    api: LocalApi, spec: dict[str, Any], told: str
) -> None:
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
        ({"spec": {"podFailurePolicy": {"rules": []}}}, ""),
    ],
)
@with_api
async def test_misspelt_fields_of_jobs_are_warned_about_at_every_level(
    api: LocalApi, changes: dict[str, Any], told: str
) -> None:
    sent = job("j")
    template = {**sent["spec"]["template"], **changes.get("spec", {}).get("template", {})}
    spec = {**sent["spec"], **changes.get("spec", {}), "template": template}
    warned = await api.call("POST", JOBS, {**sent, **changes, "spec": spec}, dryRun="All")
    assert (warned.code, warned.warnings) == (201, (f'299 - "unknown field \\"{told}\\""',) if told else ())


@pytest.mark.parametrize(("path", "sent"), [(CLAIMS, claim()), (JOBS, job("j"))], ids=["typed", "modelled in part"])
@with_api
async def test_repeated_fields_are_warned_about_or_refused(api: LocalApi, path: str, sent: dict[str, Any]) -> None:
    body = json.dumps(sent).replace('"spec": {', '"spec": {}, "spec": {', 1)
    warned = await api.call("POST", path, body, dryRun="All")
    assert (warned.code, warned.warnings) == (201, ('299 - "duplicate field \\"spec\\""',))
    strict = await api.call("POST", path, body, fieldValidation="Strict")
    assert strict.code == 400
    assert 'strict decoding error: duplicate field "spec"' in strict.document["message"]


@pytest.mark.parametrize("body", ["{", "[]", "null", '"text"', '{"metadata": 5}', '{"metadata":{"name":7}}', "\x00"])
@with_api
async def test_bodies_that_are_not_objects_are_refused(api: LocalApi, body: str) -> None:
    assert (await api.call("POST", CLAIMS, body)).code == 400
    assert (await api.call("PATCH", f"{CLAIMS}/c", body, content_type=APPLY_PATCH, fieldManager="m")).code in (400, 404)


@with_api
async def test_unknown_fields_of_a_patch_are_warned_about_or_refused(api: LocalApi) -> None:
    await api.create(CLAIMS, claim())
    for path, patch in ((f"{CLAIMS}/c", {"spec": {"devices": {"nope": 1}}}), (f"{CLAIMS}/c/status", {"nope": [1]})):
        unknown = "spec.devices.nope" if "spec" in patch else "nope"
        warned = await api.call("PATCH", path, patch, content_type=MERGE_PATCH, dryRun="All")
        assert (warned.code, warned.warnings) == (200, (f'299 - "unknown field \\"{unknown}\\""',))
        strict = await api.call("PATCH", path, patch, content_type=MERGE_PATCH, fieldValidation="Strict")
        assert strict.code == 400
        assert f'strict decoding error: unknown field "{unknown}"' in strict.document["message"]
