"""The node checkpoint is read completely, or refused with the name of the file."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.node.checkpoint import (
    CheckpointWriter,
    ClaimRecord,
    DirectoryInUse,
    DriverPart,
    ReportedDevice,
    decode_checkpoint,
    encode_checkpoint,
    lock_directory,
    read_checkpoint,
)
from dralloc.node.kubelet.checkpoint_file import BadCheckpoint

names = st.text(min_size=1, max_size=8)
devices = st.builds(
    ReportedDevice,
    pool=names,
    device=names,
    share_id=st.none() | names,
    requests=st.lists(names, max_size=2).map(tuple),
    cdi_ids=st.lists(names, max_size=2).map(tuple),
)
parts = st.builds(
    DriverPart, devices=st.lists(devices, max_size=3).map(tuple), skips=st.lists(names, max_size=2).map(tuple)
)
records = st.builds(
    ClaimRecord,
    namespace=names,
    name=names,
    uid=names,
    pods=st.frozensets(names, max_size=3),
    drivers=st.dictionaries(names, parts, max_size=2),
)

RECORD = ClaimRecord(
    namespace="default",
    name="claim",
    uid="uid-1",
    pods=frozenset({"pod-1"}),
    drivers={
        "gpu.example.com": DriverPart(
            devices=(
                ReportedDevice(pool="p", device="gpu-0", share_id="s", requests=("r",), cdi_ids=("example.com/gpu=0",)),
            )
        )
    },
)


@given(st.lists(records, max_size=4, unique_by=lambda record: (record.namespace, record.name)))
def test_a_checkpoint_round_trips(written: list[ClaimRecord]) -> None:
    by_name = sorted(written, key=lambda record: (record.namespace, record.name))
    assert list(decode_checkpoint(encode_checkpoint(written))) == by_name


@given(st.data())
def test_every_damage_is_detected(data: st.DataObject) -> None:
    content = bytearray(encode_checkpoint([RECORD]))
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[position] ^= data.draw(st.integers(1, 255))
    else:
        del content[position:]
    with pytest.raises(ValueError, match=r"checkpoint|checksum|data"):
        decode_checkpoint(bytes(content))


def test_the_file_has_the_form_that_a_kubelet_writes() -> None:
    file = json.loads(encode_checkpoint([RECORD]))
    assert file["Checksum"] == zlib.crc32(file["Data"].encode())
    assert json.loads(file["Data"]) == {
        "kind": "DRACheckpoint",
        "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": [
            {
                "ClaimUID": "uid-1",
                "ClaimName": "claim",
                "Namespace": "default",
                "PodUIDs": {"pod-1": {}},
                "DriverState": {
                    "gpu.example.com": {
                        "Devices": [
                            {
                                "PoolName": "p",
                                "DeviceName": "gpu-0",
                                "ShareID": "s",
                                "RequestNames": ["r"],
                                "CDIDeviceIDs": ["example.com/gpu=0"],
                            }
                        ]
                    }
                },
            }
        ],
    }


def checkpoint_of(document: dict[str, object]) -> bytes:
    text = json.dumps(document)
    return json.dumps({"Data": text, "Checksum": zlib.crc32(text.encode())}).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a checkpoint"),
        (b"\xff\xfe", "not a checkpoint"),
        (b'{"Data": "{}", "Checksum": 1}', "checksum mismatch"),
        (checkpoint_of({}), "found no kind of no version"),
        (checkpoint_of({"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v9"}), "v9"),
        (checkpoint_of({"kind": 1}), "the data cannot be decoded"),
    ],
    ids=["empty", "binary", "checksum", "no kind", "a later version", "another type"],
)
def test_a_file_that_cannot_be_trusted_is_named_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "dra_manager_state"
    path.write_bytes(content)
    with pytest.raises(BadCheckpoint) as refused:
        read_checkpoint(path)
    assert str(path) in str(refused.value)
    assert reason in str(refused.value)
    assert "drain the node" in str(refused.value)


def test_no_file_is_an_empty_state_and_an_unreadable_one_is_not(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "absent") == ()
    (tmp_path / "directory").mkdir()
    with pytest.raises(BadCheckpoint, match="directory"):
        read_checkpoint(tmp_path / "directory")


def test_saves_that_wait_for_each_other_share_a_write_and_none_returns_early(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "state"
        current: list[ClaimRecord] = []
        encoded = 0

        def snapshot() -> list[ClaimRecord]:
            nonlocal encoded
            encoded += 1
            return list(current)

        writer = CheckpointWriter(path, snapshot)

        async def add(number: int) -> None:
            record = ClaimRecord(namespace="default", name=f"claim-{number}", uid=f"uid-{number}")
            current.append(record)
            await writer.save()
            assert record in read_checkpoint(path)

        await asyncio.gather(*(add(number) for number in range(50)))
        assert encoded <= 3
        writer.close()

    asyncio.run(scenario())


def test_a_directory_can_be_locked_once(tmp_path: Path) -> None:
    lock_directory(tmp_path)
    with pytest.raises(DirectoryInUse, match=str(tmp_path)):
        lock_directory(tmp_path)
