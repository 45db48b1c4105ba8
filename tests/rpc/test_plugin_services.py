"""Paths, names and field numbers on the wire match those of Kubernetes."""

from __future__ import annotations

import pytest

from dralloc.rpc.generated import dra_v1_pb2 as v1
from dralloc.rpc.generated import dra_v1beta1_pb2 as v1beta1
from dralloc.rpc.generated import plugin_registration_pb2 as registration
from dralloc.rpc.plugin_services import (
    DRA_V1,
    DRA_V1BETA1,
    GET_INFO,
    HEALTH_V1,
    HEALTH_V1ALPHA1,
    NODE_PREPARE_RESOURCES,
    NODE_WATCH_RESOURCES,
    REGISTRATION,
    PluginService,
)

SERVICES = (REGISTRATION, DRA_V1, DRA_V1BETA1, HEALTH_V1, HEALTH_V1ALPHA1)


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_services_match_their_proto_files(service: PluginService) -> None:
    (described,) = service.messages.DESCRIPTOR.services_by_name.values()
    assert described.full_name == service.name
    assert {
        method.name: (method.input_type.full_name, method.output_type.full_name, method.server_streaming)
        for method in described.methods
    } == {
        name: (rpc.request.DESCRIPTOR.full_name, rpc.response.DESCRIPTOR.full_name, rpc.is_stream)
        for name, rpc in service.rpcs.items()
    }


def test_paths_match_those_of_a_kubelet() -> None:
    assert REGISTRATION.path(GET_INFO) == "/pluginregistration.Registration/GetInfo"
    assert DRA_V1.path(NODE_PREPARE_RESOURCES) == "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    assert (
        DRA_V1BETA1.path(NODE_PREPARE_RESOURCES)
        == "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources"
    )
    assert HEALTH_V1.path(NODE_WATCH_RESOURCES) == "/v1.DRAResourceHealth/NodeWatchResources"
    assert HEALTH_V1ALPHA1.path(NODE_WATCH_RESOURCES) == "/v1alpha1.DRAResourceHealth/NodeWatchResources"


def test_field_numbers_match_the_wire() -> None:
    assert v1.Claim(namespace="n", uid="u", name="c").SerializeToString() == b"\x0a\x01n\x12\x01u\x1a\x01c"
    device = v1.Device(request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["i"], share_id="s")
    assert device.SerializeToString() == b"\x0a\x01r\x12\x01p\x1a\x01d\x22\x01i\x2a\x01s"
    info = registration.PluginInfo(type="t", name="n", endpoint="e", supported_versions=["v"])
    assert info.SerializeToString() == b"\x0a\x01t\x12\x01n\x1a\x01e\x22\x01v"
    status = registration.RegistrationStatus(plugin_registered=True, error="e")
    assert status.SerializeToString() == b"\x08\x01\x12\x01e"


def test_v1beta1_loses_only_the_share_id() -> None:
    sent = v1.Device(request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["i"], share_id="s")
    read = v1beta1.Device.FromString(sent.SerializeToString())
    assert "share_id" not in {field.name for field in v1beta1.Device.DESCRIPTOR.fields}
    assert (list(read.request_names), read.pool_name, read.device_name, list(read.cdi_device_ids)) == (
        ["r"],
        "p",
        "d",
        ["i"],
    )
