"""Admin access, permissions for a claim's status, and quota."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.admission import Admitted
from dralloc.kube.authorization import Permission, StatusRequester
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.quota import (
    CLAIM_COUNT,
    QuotaFacts,
    devices_by_class,
    explain_excess,
    find_excess,
    usage_of_claim,
)
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.quantity import Quantity
from tests.support.admission import admission_context, causes, create, document_of, stored, update_status

ADMIN = {"resource.kubernetes.io/admin-access": "true"}


def claim_of(*requests: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": list(requests)}, **spec},
    }


def exactly(name: str, class_name: str = "gpu", **more: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": class_name, **more}}


# --- Admin access ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        (ADMIN, []),
        ({}, [("Forbidden", "spec.devices.requests[1].adminAccess")]),
        ({"resource.kubernetes.io/admin-access": "True"}, [("Forbidden", "spec.devices.requests[1].adminAccess")]),
        (None, [("InternalError", "spec.devices.requests[1].adminAccess")]),
    ],
    ids=["labelled", "not labelled", "labelled wrongly", "namespace unknown"],
)
def test_admin_access_requires_a_labelled_namespace(labels: dict[str, str] | None, want: list[tuple[str, str]]) -> None:
    document = claim_of(exactly("a", adminAccess=False), exactly("b", adminAccess=True), exactly("c", adminAccess=True))
    assert causes(create(document, admission_context(namespace_labels=labels))) == want


def test_admin_access_is_checked_once_in_the_status() -> None:
    result = {"request": "a", "driver": "d", "pool": "p", "device": "x", "adminAccess": True}
    status = {"allocation": {"devices": {"results": [result]}}}
    claim = stored(claim_of(exactly("a")))
    refused = update_status({**document_of(claim), "status": status}, claim)
    assert causes(refused) == [("Forbidden", "status.allocation.devices.results[0].adminAccess")]
    given = update_status({**document_of(claim), "status": status}, claim, admission_context(namespace_labels=ADMIN))
    assert isinstance(given, Admitted)
    assert causes(update_status(document_of(given.stored), given.stored)) == []


# --- Writing the status ----------------------------------------------------------------------------------------

NODE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]}
ALLOCATION = {
    "devices": {"results": [{"request": "a", "driver": "d.example.com", "pool": "p", "device": "x"}]},
    "nodeSelector": NODE,
}
SAID = [{"driver": "d.example.com", "pool": "p", "device": "x", "data": {"ok": True}}]


def allocated() -> ApiObject:
    claim = stored(claim_of(exactly("a")))
    outcome = update_status({**document_of(claim), "status": {"allocation": ALLOCATION}}, claim)
    assert isinstance(outcome, Admitted)
    return outcome.stored


def status_causes(
    status: dict[str, Any], claim: ApiObject, *granted: Permission, gates: str = ""
) -> list[tuple[str, str]]:
    def refuses(permission: Permission) -> str:
        return "" if permission in granted else f"no {permission.verb} here"

    requester = StatusRequester(verb="update", node="node-a", refuses=refuses)
    context = admission_context(gates, requester=requester)
    return causes(update_status({**document_of(claim), "status": status}, claim, context))


BINDING = Permission(subresource="binding", verb="update")
ANYWHERE = Permission(subresource="driver", verb="arbitrary-node:update", namespace="default", name="d.example.com")
HERE = Permission(subresource="driver", verb="associated-node:update", namespace="default", name="d.example.com")


def test_allocating_requires_the_binding_permission() -> None:
    claim = stored(claim_of(exactly("a")))
    assert status_causes({"allocation": ALLOCATION}, claim, ANYWHERE) == [("Forbidden", "status.allocation")]
    assert status_causes({"allocation": ALLOCATION}, claim, BINDING) == []
    without_gate = "DRAResourceClaimGranularStatusAuthorization=false"
    assert status_causes({"allocation": ALLOCATION}, claim, gates=without_gate) == []


def test_reserving_and_deallocating_require_the_binding_permission() -> None:
    reserved = {"allocation": ALLOCATION, "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    assert status_causes(reserved, allocated(), ANYWHERE) == [("Forbidden", "status.allocation")]
    assert status_causes({}, allocated(), ANYWHERE) == [("Forbidden", "status.allocation")]


def test_driver_status_requires_a_permission_for_the_node_or_for_any_node() -> None:
    said = {"allocation": ALLOCATION, "devices": SAID}
    assert status_causes(said, allocated(), BINDING) == [("Forbidden", "status.devices")]
    assert status_causes(said, allocated(), ANYWHERE) == []
    assert status_causes(said, allocated(), HERE) == []


def test_a_no_op_write_requires_no_permission() -> None:
    claim = allocated()
    assert status_causes({"allocation": ALLOCATION}, claim) == []


# --- Quota -----------------------------------------------------------------------------------------------------


def claim_object(*requests: dict[str, Any]) -> ResourceClaim:
    obj = stored(claim_of(*requests))
    assert isinstance(obj, ResourceClaim)
    return obj


def test_alternatives_are_charged_the_maximum_per_class() -> None:
    claim = claim_object(
        {
            "name": "any",
            "firstAvailable": [
                {"name": "a", "deviceClassName": "gpu", "count": 2},
                {"name": "b", "deviceClassName": "gpu"},
                {"name": "c", "deviceClassName": "tpu", "allocationMode": "All"},
            ],
        },
        exactly("more", count=3),
    )
    assert devices_by_class(claim.spec) == {"gpu": 5, "tpu": 32}


def test_a_claim_is_charged_under_all_names_of_its_class() -> None:
    usage = usage_of_claim(claim_object(exactly("a", count=2)), QuotaFacts(extended_names={"gpu": "example.com/gpu"}))
    assert usage == {
        CLAIM_COUNT: 1,
        "gpu.deviceclass.resource.k8s.io/devices": 2,
        "requests.deviceclass.resource.kubernetes.io/gpu": 2,
        "requests.example.com/gpu": 2,
    }


def test_extended_resources_of_a_pod_are_not_charged_twice() -> None:
    name = "requests.example.com/gpu"
    facts = QuotaFacts(
        extended_names={"gpu": "example.com/gpu"},
        pod_usage={name: 2, "requests.deviceclass.resource.kubernetes.io/gpu": 1},
    )
    usage = usage_of_claim(claim_object(exactly("a", count=2)), facts)
    assert name not in usage
    assert usage["requests.deviceclass.resource.kubernetes.io/gpu"] == 1


def test_a_quota_error_has_kubernetes_wording() -> None:
    usage = usage_of_claim(claim_object(exactly("a", count=2)), QuotaFacts())
    hard = {
        "gpu.deviceclass.resource.k8s.io/devices": Quantity.of(3),
        CLAIM_COUNT: Quantity.of(9),
        "pods": Quantity.of(0),
    }
    used = {"gpu.deviceclass.resource.k8s.io/devices": 2}
    excess = find_excess(hard, used, usage)
    assert explain_excess("q", excess) == (
        "exceeded quota: q, requested: gpu.deviceclass.resource.k8s.io/devices=2, "
        "used: gpu.deviceclass.resource.k8s.io/devices=2, limited: gpu.deviceclass.resource.k8s.io/devices=3"
    )
    assert find_excess(hard, used, dict.fromkeys(usage, 0)) == ()
