"""The driver's checkpoint: round trips, crashes and damaged files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.driver.checkpoint import Checkpoint, PreparationRecord, decode_record, encode_record, is_uid
from dralloc.driver.claims import DeviceKey, PreparedDevice
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.resource_v1 import NetworkDeviceData
from dralloc.node.kubelet.cdi import ContainerEdits, DeviceNode, Mount
from dralloc.node.kubelet.checkpoint_file import BadCheckpoint
from dralloc.testing.builders import DRIVER, allocation, claim, held, request

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
prepared_devices = st.builds(
    PreparedDevice,
    key=st.builds(DeviceKey, st.text(min_size=1), st.text(min_size=1), st.none() | st.text(min_size=1)),
    requests=st.lists(st.text(), max_size=2).map(tuple),
    edits=st.builds(
        ContainerEdits,
        env=st.dictionaries(st.text(), st.text(), max_size=2),
        device_nodes=st.lists(st.builds(DeviceNode, path=st.text()), max_size=2).map(tuple),
        mounts=st.lists(st.builds(Mount, host_path=st.text(), container_path=st.text()), max_size=2).map(tuple),
    ),
    conditions=st.lists(st.builds(Condition, type=st.text(), status=st.text()), max_size=2).map(tuple),
    network=st.none() | st.builds(NetworkDeviceData, interface_name=st.text()),
    data=json_values.map(lambda value: msgspec.Raw(msgspec.json.encode(value))),
    state=json_values,
)


def record(name: str = "c", **changes: object) -> PreparationRecord:
    held_claim = claim(name, request(), allocation=allocation(held("gpu-0", consumed={"memory": "10Gi"})))
    return PreparationRecord(claim=held_claim, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
@given(devices=st.lists(prepared_devices, max_size=3).map(tuple), prepared=st.booleans(), boot=st.text())
def test_a_record_round_trips(devices: tuple[PreparedDevice, ...], prepared: bool, boot: str) -> None:
    written = record(devices=devices, is_prepared=prepared, boot_id=boot)
    read = decode_record(encode_record(written))
    assert read == written
    assert read.allocated(DRIVER).prepared == devices
    assert read.allocated(DRIVER).devices[0].consumed == {
        "memory": written.allocated(DRIVER).devices[0].consumed["memory"]
    }


def test_records_are_written_read_and_removed(tmp_path: Path) -> None:
    checkpoint, another = Checkpoint(tmp_path / "claims"), Checkpoint(tmp_path / "claims")
    assert checkpoint.all() == ()
    uid = record().reference.uid
    assert checkpoint.read(uid) is None
    checkpoint.write(record())
    checkpoint.write(record("d"))
    assert another.read(uid) == record()
    checkpoint.write(record(is_prepared=True))
    assert another.read(uid) == record(is_prepared=True), "what another instance wrote is seen"
    assert len(another.all()) == 2
    checkpoint.remove(uid)
    checkpoint.remove(uid)
    assert another.read(uid) is None
    assert [found.claim.metadata.name for found in another.all()] == ["d"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"gpu-0", b"gpu-1"),
        lambda content: content.replace(b'"version":1', b'"version":2'),
        lambda content: b"\xff\xfe",
        lambda content: b"[]",
    ],
    ids=["empty", "half", "changed", "of another version", "no text", "something else"],
)
def test_a_damaged_file_is_named_and_the_others_are_read(tmp_path: Path, damage: object) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write(record())
    checkpoint.write(record("d"))
    path = tmp_path / f"{record().reference.uid}.json"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(BadCheckpoint, match=path.name):
        checkpoint.read(record().reference.uid)
    assert [found.claim.metadata.name for found in checkpoint.all()] == ["d"]
    assert [path.name in str(problem) for problem in checkpoint.damaged()] == [True]


def test_temporary_files_of_a_crash_are_ignored(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write(record())
    (tmp_path / f".{record('d').reference.uid}.json.4711").write_bytes(b'{"vers')
    assert len(checkpoint.all()) == 1
    assert checkpoint.damaged() == ()


def test_a_uid_from_the_wire_never_leaves_the_directory(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "claims")
    (tmp_path / "secret.json").write_text("{}")
    for uid in ("../secret", "/etc/passwd", "", ".", "a/b", "x" * 200, "a\0b"):
        assert not is_uid(uid)
        assert checkpoint.read(uid) is None
        checkpoint.remove(uid)
    assert (tmp_path / "secret.json").exists()


def test_a_state_that_is_not_json_is_refused(tmp_path: Path) -> None:
    device = PreparedDevice(key=DeviceKey("p", "d"), requests=(), state=object())
    with pytest.raises(TypeError):
        Checkpoint(tmp_path).write(record(devices=(device,)))
    assert Checkpoint(tmp_path).all() == ()
