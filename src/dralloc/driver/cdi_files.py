"""The CDI files of a driver: one for each claim, with one CDI device for each prepared device that has edits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dralloc.atomic_files import remove_file, write_atomically
from dralloc.driver.claims import PreparedDevice
from dralloc.kubelet.cdi import encode_spec


class ClaimCdiFiles:
    def __init__(self, directory: Path, driver: str) -> None:
        self._directory = directory
        # A CDI vendor must begin with a letter; the name of a driver need not.
        self._vendor = f"k8s.{driver}"
        self._kind = f"{self._vendor}/claim"

    def ids(self, claim_uid: str, devices: Sequence[PreparedDevice]) -> list[tuple[str, ...]]:
        """The CDI names of each device."""
        return [
            (*([] if device.edits.is_empty else [f"{self._kind}={_name(claim_uid, index)}"]), *device.cdi_device_ids)
            for index, device in enumerate(devices)
        ]

    def write(self, claim_uid: str, devices: Sequence[PreparedDevice]) -> None:
        """Write the file of the claim; without edits the file is removed."""
        edits = {
            _name(claim_uid, index): device.edits for index, device in enumerate(devices) if not device.edits.is_empty
        }
        if not edits:
            self.remove(claim_uid)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        # Container runtimes may run as another user, and the content is not secret.
        write_atomically(self._path(claim_uid), encode_spec(self._kind, edits), mode=0o644)

    def exists(self, claim_uid: str) -> bool:
        return self._path(claim_uid).exists()

    def remove(self, claim_uid: str) -> None:
        remove_file(self._path(claim_uid))

    def _path(self, claim_uid: str) -> Path:
        return self._directory / f"{self._vendor}-claim_{claim_uid}.json"


def _name(claim_uid: str, index: int) -> str:
    return f"{claim_uid}-{index}"
