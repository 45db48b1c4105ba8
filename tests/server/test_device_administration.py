"""Who decides about devices: a team with every default right in its namespace uses devices, administrators manage them."""

from __future__ import annotations

from typing import Any, Final

from tests.server.test_roles import BINDINGS, CLUSTER_BINDINGS, binding, with_roles
from tests.support.local_api import CLAIMS, RESOURCE, LocalApi, claim_document, refusal

ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
POOL: Final = {"name": "p", "generation": 1, "resourceSliceCount": 1}
RESULT: Final = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}


def with_admin_access(name: str) -> dict[str, Any]:
    claim = claim_document(name)
    claim["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    return claim


@with_roles
async def test_a_team_uses_devices_and_does_not_manage_them(admin: LocalApi, alice: LocalApi) -> None:
    await admin.create(BINDINGS, binding("team", "admin", kind="ClusterRole"))
    await alice.create(CLAIMS, claim_document("mine"))
    await alice.get(f"{CLAIMS}/mine/status")
    allocation = {"status": {"allocation": {"devices": {"results": [RESULT]}}}}
    spec = {"driver": "d.example.com", "nodeName": "n", "pool": POOL, "devices": [{"name": "gpu-0"}]}
    for forbidden in (
        alice.patch(f"{CLAIMS}/mine/status", allocation),
        alice.create(f"{RESOURCE}/deviceclasses", {"metadata": {"name": "c"}, "spec": {}}),
        alice.get(f"{RESOURCE}/deviceclasses"),
        alice.create(f"{RESOURCE}/devicetaintrules", {"metadata": {"name": "t"}, "spec": {}}),
        alice.create(f"{RESOURCE}/resourceslices", {"metadata": {"name": "s"}, "spec": spec}),
        alice.get(f"{RESOURCE}/resourceslices"),
        alice.get(f"{RESOURCE}/namespaces/kube-system/resourceclaims"),
        alice.patch("/api/v1/namespaces/default", {"metadata": {"labels": {ADMIN_ACCESS: "true"}}}),
        alice.create("/api/v1/namespaces", {"metadata": {"name": "n", "labels": {ADMIN_ACCESS: "true"}}}),
    ):
        assert (await refusal(forbidden)).code == 403
    refused = await refusal(alice.create(CLAIMS, with_admin_access("all")))
    assert (refused.code, refused.causes) == (
        422,
        [("FieldValueForbidden", "spec.devices.requests[0].adminAccess")],
    )


@with_roles
async def test_an_administrator_by_role_manages_devices(admin: LocalApi, alice: LocalApi) -> None:
    await admin.create(CLUSTER_BINDINGS, binding("root", "cluster-admin", kind="ClusterRole"))
    await alice.create(f"{RESOURCE}/deviceclasses", {"metadata": {"name": "c"}, "spec": {}})
    taint = {"key": "broken", "effect": "NoSchedule"}
    await alice.create(
        f"{RESOURCE}/devicetaintrules",
        {"metadata": {"name": "t"}, "spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": taint}},
    )
    await alice.patch("/api/v1/namespaces/default", {"metadata": {"labels": {ADMIN_ACCESS: "true"}}})
    await alice.create(CLAIMS, with_admin_access("all"))
    await alice.patch(
        f"{CLAIMS}/all/status", {"status": {"allocation": {"devices": {"results": [{**RESULT, "adminAccess": True}]}}}}
    )


@with_roles
async def test_the_right_to_write_the_status_is_not_the_right_to_allocate(admin: LocalApi, alice: LocalApi) -> None:
    """A role of the namespace never gives it: devices are shared by all namespaces."""
    rules = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["*/*"], "verbs": ["*"]},
    ]
    roles = BINDINGS.replace("rolebindings", "roles")
    await admin.create(roles, {"metadata": {"name": "all"}, "rules": rules})
    await admin.create(BINDINGS, binding("all", "all"))
    await alice.create(CLAIMS, claim_document("mine"))
    refused = await refusal(
        alice.patch(f"{CLAIMS}/mine/status", {"status": {"allocation": {"devices": {"results": [RESULT]}}}})
    )
    assert (refused.code, refused.causes) == (422, [("FieldValueForbidden", "status.allocation")])
    assert refused.document["message"].endswith("at the cluster scope")
