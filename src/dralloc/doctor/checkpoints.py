"""Checkpoint files as values: of kubelets and node agents, and of drivers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dralloc.driver.checkpoint import decode_record
from dralloc.node.checkpoint import decode_checkpoint


class CheckpointForm(StrEnum):
    # One file for all claims of a node: a kubelet, or `dralloc node`.
    NODE = "node"
    # One file for each claim: a driver of the SDK.
    DRIVER = "driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """A claim that is prepared on a node, or being prepared. `pods` are the UIDs of its pods, if the file says."""

    namespace: str
    name: str
    uid: str
    pods: frozenset[str] = frozenset()
    drivers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecords:
    """What one file has."""

    file: str
    form: CheckpointForm
    claims: tuple[PreparedClaim, ...]
    # When the file was last written.
    written: datetime | None = None


def read_records(file: str, content: bytes, written: datetime | None = None) -> CheckpointRecords:
    """The records of a file in either form; ValueError says why it cannot be used."""
    try:
        records = decode_checkpoint(content)
    except ValueError as node_error:
        try:
            record = decode_record(content)
        except ValueError as driver_error:
            raise ValueError(
                f"neither the checkpoint of a kubelet or node agent ({node_error}), nor of a driver ({driver_error})"
            ) from None
        metadata = record.claim.metadata
        allocation = record.claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        claim = PreparedClaim(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            drivers=tuple(dict.fromkeys(result.driver for result in results)),
        )
        return CheckpointRecords(file=file, form=CheckpointForm.DRIVER, claims=(claim,), written=written)
    claims = (
        PreparedClaim(
            namespace=each.namespace, name=each.name, uid=each.uid, pods=each.pods, drivers=tuple(each.drivers)
        )
        for each in records
    )
    return CheckpointRecords(file=file, form=CheckpointForm.NODE, claims=tuple(claims), written=written)
