"""Disabled features: their fields are dropped from writes and kept in stored objects."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest

from dralloc.kube.admission import Admitted
from dralloc.primitives.features import FeatureGates, UnknownGate
from tests.support.admission import admission_context, causes, create, document_of, stored, update, update_status

SHARE = "11111111-2222-4333-8444-555555555555"


def slice_of(device: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    placed = {"allNodes": True} if "perDeviceNodeSelection" not in spec else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d",
            "pool": {"name": "p", "resourceSliceCount": 1},
            **placed,
            **({"devices": [{"name": "x", **device}]} if device else {}),
            **spec,
        },
    }


def claim_of(exactly: dict[str, Any] | None = None, **devices: Any) -> dict[str, Any]:
    requests = [{"name": "r", "exactly": {"deviceClassName": "c", **(exactly or {})}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": requests, **devices}},
    }


@dataclass(frozen=True, slots=True)
class Case:
    """`document` uses a feature in the field at `way`; without the feature the field is absent."""

    id: str
    gate: str
    document: dict[str, Any]
    way: tuple[Any, ...]


DEVICE = ("spec", "devices", 0)
EXACTLY = ("spec", "devices", "requests", 0, "exactly")

POLICY = (*DEVICE, "capacity", "m", "requestPolicy")
NAMED = {"allowMultipleAllocations": True, "capacity": {"m": {"value": "1", "requestPolicyName": "a"}}}


def policy_of(policy: dict[str, Any]) -> dict[str, Any]:
    return slice_of({"allowMultipleAllocations": True, "capacity": {"m": {"value": "1", "requestPolicy": policy}}})


CASES = [
    Case("taints", "DRADeviceTaints", slice_of({"taints": [{"key": "k", "effect": "None"}]}), (*DEVICE, "taints")),
    Case(
        "counters",
        "DRAPartitionableDevices",
        slice_of({"consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}]}),
        (*DEVICE, "consumesCounters"),
    ),
    Case(
        "binding conditions",
        "DRADeviceBindingConditions",
        slice_of({"bindingConditions": ["A"], "bindingFailureConditions": ["B"]}),
        (*DEVICE, "bindingConditions"),
    ),
    Case(
        "shareable",
        "DRAConsumableCapacity",
        slice_of({"allowMultipleAllocations": False}),
        (*DEVICE, "allowMultipleAllocations"),
    ),
    Case(
        "request policies",
        "DRAConsumableCapacity",
        slice_of(
            {"allowMultipleAllocations": True, "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}}}
        ),
        (*DEVICE, "capacity", "m", "requestPolicy"),
    ),
    Case("admin access", "DRAAdminAccess", claim_of({"adminAccess": False}), (*EXACTLY, "adminAccess")),
    Case(
        "tolerations", "DRADeviceTaints", claim_of({"tolerations": [{"operator": "Exists"}]}), (*EXACTLY, "tolerations")
    ),
    Case("capacity", "DRAConsumableCapacity", claim_of({"capacity": {"requests": {"m": "1"}}}), (*EXACTLY, "capacity")),
    Case(
        "distinct attributes",
        "DRAConsumableCapacity",
        claim_of(constraints=[{"matchAttribute": "a.b/c", "distinctAttribute": "a.b/c"}]),
        ("spec", "devices", "constraints", 0, "distinctAttribute"),
    ),
    Case(
        "workloads",
        "DRAReservedForWorkloads",
        {**claim_of(), "spec": {**claim_of()["spec"], "reservedFor": {"resource": "jobs", "name": "j", "uid": "u"}}},
        ("spec", "reservedFor"),
    ),
    Case(
        "extended resources",
        "DRAExtendedResource",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "c"},
            "spec": {"extendedResourceName": "a.b/c"},
        },
        ("spec", "extendedResourceName"),
    ),
    Case(
        "limits",
        "DRACapacityLimits",
        claim_of({"capacity": {"requests": {"m": "1"}, "limits": {"m": "2"}}}),
        (*EXACTLY, "capacity", "limits"),
    ),
    Case("strategies", "DRACapacityStrategies", policy_of({"strategy": "BlockOrShare"}), (*POLICY, "strategy")),
    Case("zero consumption", "DRAZeroConsumption", policy_of({"zeroConsumption": True}), (*POLICY, "zeroConsumption")),
    Case(
        "named policies",
        "DRANamedRequestPolicies",
        slice_of(NAMED | {"requestPolicies": {"a": {"default": "1"}}}),
        (*DEVICE, "requestPolicies"),
    ),
    Case(
        "names of policies",
        "DRANamedRequestPolicies",
        slice_of(NAMED | {"requestPolicies": {"a": {"default": "1"}}}),
        (*DEVICE, "capacity", "m", "requestPolicyName"),
    ),
    Case(
        "remainders",
        "DRACapacityRemainder",
        slice_of({"allowMultipleAllocations": True, "remainder": "GiveToLast"}),
        (*DEVICE, "remainder"),
    ),
    Case(
        "preferences",
        "DRADevicePreference",
        claim_of({"devicePreference": "MostAvailable"}),
        (*EXACTLY, "devicePreference"),
    ),
    Case("allocations", "DRADevicePreference", claim_of({"allocations": {"max": 0}}), (*EXACTLY, "allocations")),
    Case(
        "preferences of classes",
        "DRADevicePreference",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "c"},
            "spec": {"devicePreference": "FirstFit"},
        },
        ("spec", "devicePreference"),
    ),
]


def value_at(document: Any, way: tuple[Any, ...]) -> Any:
    for step in way:
        if isinstance(document, dict) and step not in document:
            return None
        document = document[step]
    return document


def settings(gate: str, *, on: bool) -> str:
    """Returns the gate switched, together with the gates that depend on it."""
    needing = "" if on or gate != "DRADeviceTaints" else ",DRADeviceTaintRules=false"
    return f"{gate}={str(on).lower()}{needing}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_fields_of_a_disabled_feature_are_kept_only_if_already_in_use(case: Case) -> None:
    on, off = admission_context(settings(case.gate, on=True)), admission_context(settings(case.gate, on=False))
    used = stored(case.document, on)
    assert value_at(document_of(used), case.way) is not None
    kept = update(document_of(used), used, off)
    assert isinstance(kept, Admitted), causes(kept)
    assert kept.stored == used
    assert value_at(document_of(stored(case.document, off)), case.way) is None


def test_without_prioritized_lists_a_request_with_alternatives_becomes_empty() -> None:
    document = claim_of()
    document["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]}]
    on = stored(document)
    off = admission_context("DRAPrioritizedList=false")
    relabelled = {**document_of(on), "metadata": {"name": "c", "labels": {"a": "b"}}}
    assert isinstance(update(relabelled, on, off), Admitted)
    assert causes(create(document, off)) == [("Required", "spec.devices.requests[0]")]


STATUS: dict[str, Any] = {
    "allocation": {
        "devices": {
            "results": [
                {
                    "request": "r",
                    "driver": "d",
                    "pool": "p",
                    "device": "x",
                    "shareID": SHARE,
                    "consumedCapacity": {"m": "1"},
                }
            ]
        }
    },
    "devices": [{"driver": "d", "pool": "p", "device": "x", "shareID": SHARE}],
}


def test_share_ids_are_dropped_from_a_new_allocation_and_kept_in_a_claim_with_capacity_requests() -> None:
    off = admission_context("DRAConsumableCapacity=false")
    plain = stored(claim_of())
    dropped = update_status({**document_of(plain), "status": STATUS}, plain, off)
    assert isinstance(dropped, Admitted), causes(dropped)
    result = document_of(dropped.stored)["status"]["allocation"]["devices"]["results"][0]
    assert "shareID" not in result
    assert "consumedCapacity" not in result
    asking = stored(claim_of({"capacity": {"requests": {"m": "1"}}}))
    kept = update_status({**document_of(asking), "status": STATUS}, asking, off)
    assert isinstance(kept, Admitted), causes(kept)
    assert document_of(kept.stored)["status"]["allocation"]["devices"]["results"][0]["shareID"] == SHARE


def test_limits_are_dropped_from_an_allocation_unless_the_claim_asks_for_them() -> None:
    off, on = admission_context(""), admission_context("DRACapacityLimits=true")
    status = copy.deepcopy(STATUS)
    status["allocation"]["devices"]["results"][0]["capacityLimits"] = {"m": "2"}
    plain, bursting = stored(claim_of()), stored(claim_of({"capacity": {"limits": {"m": "2"}}}), on)
    for claim, context, want in ((plain, off, None), (plain, on, {"m": "2"}), (bursting, off, {"m": "2"})):
        outcome = update_status({**document_of(claim), "status": status}, claim, context)
        assert isinstance(outcome, Admitted), causes(outcome)
        result = document_of(outcome.stored)["status"]["allocation"]["devices"]["results"][0]
        assert result.get("capacityLimits") == want


def test_a_dropped_strategy_leaves_the_rest_of_its_policy() -> None:
    document = policy_of({"default": "1", "strategy": "ConsumedOrNever"})
    assert value_at(document_of(stored(document)), POLICY) == {"default": "1"}


def test_summed_capacity_takes_32_devices_at_most_unless_it_says_otherwise() -> None:
    document = claim_of({"allocationMode": "AggregatedCapacity", "capacity": {"requests": {"m": "1"}}})
    claim = stored(document, admission_context("DRAAggregatedCapacity=true"))
    assert value_at(document_of(claim), (*EXACTLY, "count")) == 32


def test_all_alpha_gates_are_set_together_and_single_settings_win() -> None:
    alpha = FeatureGates.parse("AllAlpha=true")
    assert {"DRACapacityLimits", "DRADerivedAttributes", "DRADistinctAttributes"} <= alpha.enabled
    assert "DRAFractionalCapacityRange" not in alpha
    assert FeatureGates.parse("DRACapacityLimits=false,AllAlpha=true").enabled == alpha.enabled - {"DRACapacityLimits"}
    assert FeatureGates.parse("AllAlpha=false") == FeatureGates.defaults()


def test_without_its_gate_a_claim_is_reserved_only_for_the_listed_pods() -> None:
    off = admission_context("DRAReservedForWorkloads=false")
    plain = stored(claim_of())
    outcome = update_status({**document_of(plain), "status": {"allocation": {"reservedForAnyPod": True}}}, plain, off)
    assert isinstance(outcome, Admitted), causes(outcome)
    assert document_of(outcome.stored)["status"] == {"allocation": {"devices": {}}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DRANope=true", "there is no feature gate"),
        ("DRAConsumableCapacity", "write NAME=true"),
        ("DynamicResourceAllocation=false", "locked"),
        ("DRADeviceTaints=false", "needs DRADeviceTaints"),
        ("AllAlpha=true,DRAConsumableCapacity=false", "needs DRAConsumableCapacity"),
    ],
)
def test_invalid_gate_settings_are_rejected(text: str, words: str) -> None:
    with pytest.raises(UnknownGate, match=words):
        FeatureGates.parse(text)
