"""The CDI files of a driver: one for each claim, with one device for each prepared device that changes containers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dralloc.driver.claims import PreparedDevice
from dralloc.kubelet.atomic_files import remove_file, write_atomically
from dralloc.kubelet.cdi import encode_spec


class ClaimCdiFiles:
    """The directory in which container runtimes look, and our files in it."""

    def __init__(self, directory: Path, driver: str) -> None:
        self._directory = directory
        # The vendor must begin with a letter; a driver's name need not.
        self._vendor = f"k8s.{driver}"
        self._kind = f"{self._vendor}/claim"

    def ids(self, claim_uid: str, devices: Sequence[PreparedDevice]) -> list[tuple[str, ...]]:
        """For each device the CDI names under which containers get it."""
        return [
            (*([] if device.edits.is_empty else [f"{self._kind}={_name(claim_uid, index)}"]), *device.cdi_device_ids)
            for index, device in enumerate(devices)
        ]

    def write(self, claim_uid: str, devices: Sequence[PreparedDevice]) -> None:
        """Make the claim's file say what the devices need; where they need nothing there is none."""
        edits = {
            _name(claim_uid, index): device.edits for index, device in enumerate(devices) if not device.edits.is_empty
        }
        if not edits:
            self.remove(claim_uid)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        # Container runtimes run as somebody else perhaps, and there is nothing secret in it.
        write_atomically(self._path(claim_uid), encode_spec(self._kind, edits), mode=0o644)

    def is_there(self, claim_uid: str) -> bool:
        return self._path(claim_uid).exists()

    def remove(self, claim_uid: str) -> None:
        remove_file(self._path(claim_uid))

    def _path(self, claim_uid: str) -> Path:
        return self._directory / f"{self._vendor}-claim_{claim_uid}.json"


def _name(claim_uid: str, index: int) -> str:
    return f"{claim_uid}-{index}"
