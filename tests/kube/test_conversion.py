"""Conversion between versions is lossless."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dralloc.kube.codec import decode, encode
from dralloc.kube.conversion import V1BETA1, VERSIONS, from_hub, to_hub
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import KINDS, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, RESOURCE_SLICE
from dralloc.kube.resource_v1 import DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimTemplate
from tests.support.admission import document_of, stored
from tests.support.wire_objects import wire_objects

GROUP_KINDS = [kind for kind in KINDS if kind.group == "resource.k8s.io"]


def _requests(obj: ApiObject) -> tuple[DeviceRequest, ...]:
    match obj:
        case ResourceClaim():
            return obj.spec.devices.requests or ()
        case ResourceClaimTemplate():
            return obj.spec.spec.devices.requests or ()
        case _:
            return ()


def _can_be_stored(obj: ApiObject) -> bool:
    """v1beta1 cannot express an exact request without a class, which is invalid anyway."""
    return all(request.exactly != ExactDeviceRequest() for request in _requests(obj))


@st.composite
def sent_objects(draw: st.DrawFn) -> tuple[Kind, str, Any]:
    kind = draw(st.sampled_from(GROUP_KINDS))
    served = draw(st.sampled_from(kind.versions))
    obj = draw(wire_objects(served.wire_type))
    return kind, served.version, to_hub(obj)


@pytest.mark.slow
@pytest.mark.fuzz
@given(sent=sent_objects(), data=st.data())
def test_the_hub_round_trips_through_all_versions(sent: tuple[Kind, str, ApiObject], data: st.DataObject) -> None:
    kind, _, hub = sent
    assume(_can_be_stored(hub))
    seen = hub
    for version in data.draw(st.lists(st.sampled_from([served.version for served in kind.versions]), max_size=4)):
        served = kind.served(version)
        assert served is not None
        shown = decode(encode(from_hub(seen, version)), served.wire_type)
        seen = to_hub(shown)
    assert decode(encode(seen), kind.hub) == decode(encode(_as_v1beta1_sees_it(hub, seen)), kind.hub)


def _as_v1beta1_sees_it(hub: ApiObject, seen: ApiObject) -> ApiObject:
    """In a slice, v1beta1 cannot distinguish an empty `nodeName` or `allNodes: false` from absent; both are invalid in
    v1.
    """
    spec = getattr(hub, "spec", None)
    if getattr(spec, "node_name", None) == "" or getattr(spec, "all_nodes", None) is False:
        return seen
    return type(hub)(
        **{**{field: getattr(hub, field) for field in hub.__struct_fields__}, "api_version": seen.api_version}
    )


CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "gpu",
                    "exactly": {"deviceClassName": "gpu", "count": 2, "capacity": {"requests": {"memory": "1Gi"}}},
                },
                {"name": "nic", "firstAvailable": [{"name": "a", "deviceClassName": "x"}]},
            ]
        },
        "reservedFor": {"apiGroup": "batch", "resource": "jobs", "name": "j", "uid": "u"},
    },
}


def test_v1beta1_flattens_exact_requests_and_keeps_alternatives() -> None:
    shown = document_of(from_hub(stored(CLAIM), V1BETA1))
    assert shown["apiVersion"] == "resource.k8s.io/v1beta1"
    assert shown["spec"]["devices"]["requests"] == [
        {
            "name": "gpu",
            "deviceClassName": "gpu",
            "allocationMode": "ExactCount",
            "count": 2,
            "capacity": {"requests": {"memory": "1Gi"}},
        },
        {
            "name": "nic",
            "deviceClassName": "",
            "firstAvailable": [{"name": "a", "deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}],
        },
    ]
    assert shown["spec"]["reservedFor"] == CLAIM["spec"]["reservedFor"]  # type: ignore[index]


def test_v1beta1_puts_a_device_in_basic_even_if_it_only_has_a_name() -> None:
    spec = {
        "driver": "d",
        "allNodes": True,
        "pool": {"name": "p", "resourceSliceCount": 1},
        "devices": [{"name": "x"}, {"name": "y", "allowMultipleAllocations": True}],
    }
    obj = stored({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec})
    shown = document_of(from_hub(obj, V1BETA1))
    assert shown["spec"]["devices"] == [
        {"name": "x", "basic": {}},
        {"name": "y", "basic": {"allowMultipleAllocations": True}},
    ]


@pytest.mark.parametrize("kind", [RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, RESOURCE_SLICE], ids=lambda kind: kind.kind)
def test_all_versions_are_served(kind: Kind) -> None:
    assert tuple(served.version for served in kind.versions) == VERSIONS
