"""The checkpoint of a driver: one file for each claim that is prepared or being prepared.

A file is written before the driver is called, so no prepared device is forgotten in a crash. With one file for each claim, writes are
small, two instances of a driver can share the directory, and a damaged file affects one claim only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from dralloc.atomic_files import remove_file, write_atomically
from dralloc.driver.claims import AllocatedClaim, ClaimReference, PreparedDevice, allocated_claim
from dralloc.kube.codec import DecodeError, decode, encode
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import ResourceClaim, ResourceClaimStatus
from dralloc.node.kubelet.checkpoint_file import BadCheckpoint, check_checksum, checksum
from dralloc.primitives.decoders import UNREADABLE, make_decoder

VERSION: Final = 1
SUFFIX: Final = ".json"

# UIDs that can be file names; those of Kubernetes are UUIDs.
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationRecord:
    """A claim at the time of its preparation, and the devices that the driver prepared."""

    claim: ResourceClaim
    # False until the driver has finished.
    is_prepared: bool = False
    # After a reboot of the machine, the claim must be prepared again.
    boot_id: str = ""
    devices: tuple[PreparedDevice, ...] = ()

    @property
    def reference(self) -> ClaimReference:
        metadata = self.claim.metadata
        return ClaimReference(metadata.namespace, metadata.name, metadata.uid)

    def allocated(self, driver: str) -> AllocatedClaim:
        return replace(allocated_claim(self.claim, driver), prepared=self.devices)


class _Content(msgspec.Struct):
    claim: msgspec.Raw
    is_prepared: bool
    boot_id: str
    devices: tuple[PreparedDevice, ...]


class _File(msgspec.Struct):
    version: int
    checksum: int
    record: msgspec.Raw


_CONTENT: Final = make_decoder(_Content)
_FILE: Final = make_decoder(_File)


def encode_record(record: PreparationRecord) -> bytes:
    """The content of a file, with the fields of the claim that a driver gets; `TypeError` if a state is not JSON."""
    metadata = record.claim.metadata
    kept = ResourceClaim(
        metadata=ObjectMeta(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid),
        spec=record.claim.spec,
        status=ResourceClaimStatus(
            allocation=record.claim.status.allocation, reserved_for=record.claim.status.reserved_for
        ),
    )
    content = _Content(msgspec.Raw(encode(kept)), record.is_prepared, record.boot_id, record.devices)
    text = msgspec.json.encode(content)
    return msgspec.json.encode(_File(VERSION, checksum(text), msgspec.Raw(text)))


def decode_record(content: bytes) -> PreparationRecord:
    """The encoded record; `ValueError` says why the content cannot be used."""
    try:
        file = _FILE.decode(content)
        if file.version != VERSION:
            raise ValueError(f"unsupported version {file.version}, expected {VERSION}")
        check_checksum(bytes(file.record), file.checksum)
        found = _CONTENT.decode(file.record)
        claim = decode(bytes(found.claim), ResourceClaim)
    except (*UNREADABLE, DecodeError) as error:
        raise ValueError(f"not a record of a claim: {error}") from None
    return PreparationRecord(claim=claim, is_prepared=found.is_prepared, boot_id=found.boot_id, devices=found.devices)


class Checkpoint:
    """The directory of records, with a cache of those that were read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, tuple[tuple[int, int, int], PreparationRecord]] = {}

    def read(self, uid: str) -> PreparationRecord | None:
        """The record of a claim, if any; raises `BadCheckpoint` for a damaged file."""
        if not is_uid(uid):
            return None
        return self._load(self._path(uid))

    def all(self) -> tuple[PreparationRecord, ...]:
        """All records, except damaged ones."""
        records = []
        for path in self._files():
            try:
                record = self._load(path)
            except BadCheckpoint:
                continue
            if record is not None:
                records.append(record)
        return tuple(records)

    def damaged(self) -> tuple[BadCheckpoint, ...]:
        """The errors of damaged files."""
        found = []
        for path in self._files():
            try:
                self._load(path)
            except BadCheckpoint as error:
                found.append(error)
        return tuple(found)

    def write(self, record: PreparationRecord) -> None:
        """Raises `ValueError` or `TypeError`, and writes nothing, if the record could not be read back."""
        uid = record.reference.uid
        assert is_uid(uid), f"not a UID: {uid!r}"
        content = encode_record(record)
        # A claim whose file is not readable would never be released.
        decode_record(content)
        self._directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(uid), content)

    def remove(self, uid: str) -> None:
        if is_uid(uid):
            remove_file(self._path(uid))
            self._known.pop(uid + SUFFIX, None)

    def _path(self, uid: str) -> Path:
        return self._directory / (uid + SUFFIX)

    def _files(self) -> Iterator[Path]:
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return
        yield from (self._directory / name for name in names if name.endswith(SUFFIX) and not name.startswith("."))

    def _load(self, path: Path) -> PreparationRecord | None:
        try:
            status = path.stat()
            # Files are replaced, never modified, so the identity changes with the content.
            identity = (status.st_ino, status.st_size, status.st_mtime_ns)
            known = self._known.get(path.name)
            if known is not None and known[0] == identity:
                return known[1]
            record = decode_record(path.read_bytes())
        except FileNotFoundError:
            self._known.pop(path.name, None)
            return None
        except (OSError, ValueError) as error:
            raise BadCheckpoint(
                f"{path}: {error}; the claim cannot be prepared or released: undo what the driver prepared for it, then remove the file"
            ) from None
        self._known[path.name] = (identity, record)
        return record


def is_uid(text: str) -> bool:
    return _UID.fullmatch(text) is not None
