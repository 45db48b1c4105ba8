"""CDI names and spec files: what drivers write is what container runtimes read."""

from __future__ import annotations

import msgspec
import pytest

from dralloc.node.kubelet.cdi import (
    BadCdiSpec,
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
    NetDevice,
    decode_spec,
    encode_spec,
    find_edit_faults,
    is_cdi_name,
)

ALL_EDITS = ContainerEdits(
    env={"A": "b=c", "EMPTY": ""},
    device_nodes=(DeviceNode(path="/dev/x", host_path="/dev/y", type="c", major=1, minor=2, permissions="rw"),),
    mounts=(Mount(host_path="/h", container_path="/c", options=("ro",), type="bind"),),
    hooks=(Hook(hook_name="poststop", path="/bin/true", args=("true",), env=("A=b",), timeout=3),),
    net_devices=(NetDevice(host_interface_name="nq0", name="eth1"),),
    additional_gids=(44, 109),
    intel_rdt={"closID": "gold"},
)


@pytest.mark.parametrize("field", ContainerEdits.__struct_fields__)
def test_every_edit_survives_a_spec_file(field: str) -> None:
    edits = ContainerEdits(**{field: getattr(ALL_EDITS, field)})
    assert not edits.is_empty
    assert decode_spec(encode_spec("example.com/gpu", {"a": edits}), ".json").devices == {"a": edits}


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_spec_is_read_in_both_formats(suffix: str) -> None:
    assert decode_spec(encode_spec("example.com/gpu", {"a": ALL_EDITS}), suffix).devices == {"a": ALL_EDITS}


def test_edits_of_a_wrong_type_are_refused() -> None:
    content = encode_spec("example.com/gpu", {"a": ALL_EDITS}).replace(b"[44,109]", b'"44"')
    with pytest.raises(BadCdiSpec, match="additionalGids"):
        decode_spec(content, ".json")


@pytest.mark.parametrize(
    ("edits", "version"),
    [
        (ContainerEdits(env={"A": "b"}), "0.5.0"),
        (ContainerEdits(device_nodes=(DeviceNode(path="/dev/x", host_path="/dev/y"),)), "0.5.0"),
        (ContainerEdits(additional_gids=(7,)), "0.7.0"),
        (ContainerEdits(net_devices=(NetDevice(host_interface_name="nq0", name="eth1"),)), "1.1.0"),
    ],
)
def test_a_spec_states_the_oldest_version_that_fits(edits: ContainerEdits, version: str) -> None:
    assert msgspec.json.decode(encode_spec("k8s.example.com/claim", {"0-0": edits}))["cdiVersion"] == version


def test_a_spec_has_the_format_that_container_runtimes_read() -> None:
    edits = ContainerEdits(
        env={"A": "b=c"},
        device_nodes=(DeviceNode(path="/dev/x", permissions="rw"),),
        mounts=(Mount(host_path="/h", container_path="/c", options=("ro",)),),
        net_devices=(NetDevice(host_interface_name="nq0", name="eth1"),),
    )
    assert msgspec.json.decode(encode_spec("k8s.example.com/claim", {"u-0": edits})) == {
        "cdiVersion": "1.1.0",
        "kind": "k8s.example.com/claim",
        "devices": [
            {
                "name": "u-0",
                "containerEdits": {
                    "env": ["A=b=c"],
                    "deviceNodes": [{"path": "/dev/x", "permissions": "rw"}],
                    "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro"]}],
                    "netDevices": [{"hostInterfaceName": "nq0", "name": "eth1"}],
                },
            }
        ],
    }


@pytest.mark.parametrize("text", ["vendor.com/gpu=0", "k8s.gpu.example.com/claim=4f-0", "v1.x/a.b=a:b"])
def test_cdi_names(text: str) -> None:
    assert is_cdi_name(text)


@pytest.mark.parametrize(
    "text", ["", "gpu=0", "vendor.com/gpu", "1x.com/gpu=0", "vendor.com/1=0", "v.com/a=b c", "v.com/a=-"]
)
def test_invalid_cdi_names(text: str) -> None:
    assert not is_cdi_name(text)


def test_paths_in_edits_are_absolute() -> None:
    edits = ContainerEdits(
        device_nodes=(DeviceNode(path="dev/x"),), mounts=(Mount(host_path="/h", container_path="c"),)
    )
    assert len(list(find_edit_faults(edits))) == 2
