"""Finding CDI devices: merged edits, precedence of directories, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dralloc.driver import ContainerEdits, DeviceKey, DeviceNode, Hook, Mount, PreparedDevice
from dralloc.driver.preparer import ClaimCdiFiles
from dralloc.node.kubelet.cdi_registry import BadDevices, CdiRegistry


def spec(kind: str = "example.com/gpu", edits: dict[str, Any] | None = None, **devices: dict[str, Any]) -> str:
    described = [{"name": name, "containerEdits": value} for name, value in devices.items()]
    return json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": described, "containerEdits": edits or {}})


def test_a_device_has_its_own_edits_and_those_of_its_file(tmp_path: Path) -> None:
    everything = {
        "env": ["GPU=0", "EMPTY=", "URL=a=b"],
        "deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/host-gpu0", "type": "c"}],
        "mounts": [{"hostPath": "/opt/lib", "containerPath": "/lib/gpu", "options": ["ro"]}],
        "hooks": [{"hookName": "createContainer", "path": "/bin/true"}],
    }
    (tmp_path / "gpu.json").write_text(spec(edits={"env": ["DRIVER=1"]}, a=everything, b={"env": ["B=1"]}))
    edits = CdiRegistry([tmp_path]).edits_for(["example.com/gpu=a"])
    assert edits.env == {"DRIVER": "1", "GPU": "0", "EMPTY": "", "URL": "a=b"}
    assert edits.device_nodes == (DeviceNode(path="/dev/gpu0", host_path="/dev/host-gpu0", type="c"),)
    assert edits.mounts == (Mount(host_path="/opt/lib", container_path="/lib/gpu", options=("ro",)),)
    assert edits.hooks == (Hook(hook_name="createContainer", path="/bin/true"),)


def test_edits_of_several_devices_are_merged_in_order(tmp_path: Path) -> None:
    (tmp_path / "gpu.yaml").write_text(spec(a={"env": ["WHO=a", "A=1"]}, b={"env": ["WHO=b"]}))
    files = CdiRegistry([tmp_path])
    assert files.edits_for(["example.com/gpu=a", "example.com/gpu=b"]).env == {"WHO": "b", "A": "1"}
    assert files.edits_for(["example.com/gpu=b", "example.com/gpu=a"]).env == {"WHO": "a", "A": "1"}
    assert files.edits_for([]).env == {}


def test_the_later_directory_wins_and_a_conflict_within_one_is_an_error(tmp_path: Path) -> None:
    first, second = tmp_path / "etc", tmp_path / "run"
    first.mkdir()
    second.mkdir()
    (first / "a.json").write_text(spec(x={"env": ["FROM=etc"]}))
    (second / "a.json").write_text(spec(x={"env": ["FROM=run"]}))
    files = CdiRegistry([first, second])
    assert files.edits_for(["example.com/gpu=x"]).env == {"FROM": "run"}
    (second / "b.json").write_text(spec(x={"env": ["FROM=run too"]}))
    with pytest.raises(BadDevices, match=r"described in .*a\.json and in .*b\.json"):
        files.edits_for(["example.com/gpu=x"])


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    path, files = tmp_path / "gpu.json", CdiRegistry([tmp_path])
    path.write_text(spec(a={"env": ["N=1"]}))
    assert files.edits_for(["example.com/gpu=a"]).env == {"N": "1"}
    path.write_text(spec(a={"env": ["N=2222"]}))
    assert files.edits_for(["example.com/gpu=a"]).env == {"N": "2222"}
    path.unlink()
    with pytest.raises(BadDevices):
        files.edits_for(["example.com/gpu=a"])


@pytest.mark.parametrize("content", ["", "[]", "{", "kind: [", '{"kind": 1, "cdiVersion": "0.6.0"}', "\x00"])
def test_an_invalid_file_is_named_only_if_a_device_is_missing(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.yaml").write_text(content)
    (tmp_path / "good.json").write_text(spec(a={"env": ["N=1"]}))
    files = CdiRegistry([tmp_path, tmp_path / "absent"])
    assert files.edits_for(["example.com/gpu=a"]).env == {"N": "1"}
    with pytest.raises(BadDevices, match=r"describes device example.com/gpu=b; .*bad\.yaml cannot be read: "):
        files.edits_for(["example.com/gpu=b"])


def test_additional_gids_that_a_driver_writes_reach_the_node(tmp_path: Path) -> None:
    device = PreparedDevice(
        key=DeviceKey("pool", "gpu-0"), requests=("gpu",), edits=ContainerEdits(additional_gids=(44, 109))
    )
    files = ClaimCdiFiles(tmp_path, "gpu.example.com")
    files.write("claim-uid", [device])
    ((cdi_id,),) = files.ids("claim-uid", [device])
    assert CdiRegistry([tmp_path]).edits_for([cdi_id]) == device.edits
