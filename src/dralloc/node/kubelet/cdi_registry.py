"""Finds CDI devices in spec files as container runtimes do.

If two directories describe the same device, the later directory counts. Within one directory that is a conflict, and the device
cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralloc.node.kubelet.cdi import CDI_DIRECTORIES, BadCdiSpec, CdiSpec, ContainerEdits, decode_spec, merge_edits

SUFFIXES: Final = (".json", ".yaml")


class BadDevices(Exception):
    """No spec file gives the devices that a container needs; the message says which and why."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A device in a spec file, with its own edits and those of the file."""

    path: Path
    level: int
    edits: tuple[ContainerEdits, ...]
    conflicts_with: Path | None = None


class CdiRegistry:
    """The devices in the spec files of some directories. A file is read again after it has changed."""

    def __init__(self, directories: Iterable[Path] = CDI_DIRECTORIES) -> None:
        self._directories = tuple(directories)
        self._read: dict[Path, tuple[tuple[int, int, int], CdiSpec | str]] = {}

    def names(self) -> frozenset[str]:
        return frozenset(self._find()[0])

    def edits_for(self, names: Iterable[str]) -> ContainerEdits:
        """The merged edits of these devices in their order, with those of each file once; raises `BadDevices`."""
        wanted = tuple(dict.fromkeys(names))
        if not wanted:
            return ContainerEdits()
        found, faults = self._find()
        chosen: list[ContainerEdits] = []
        for name in wanted:
            device = found.get(name)
            if device is None:
                raise BadDevices(self._missing(name, faults))
            if device.conflicts_with is not None:
                raise BadDevices(f"CDI device {name} is described in {device.conflicts_with} and in {device.path}")
            chosen += [edits for edits in device.edits if not any(edits is other for other in chosen)]
        return merge_edits(chosen)

    def _find(self) -> tuple[dict[str, _Found], dict[Path, str]]:
        """The devices by full name, and what is wrong with files that cannot be read."""
        found: dict[str, _Found] = {}
        faults: dict[Path, str] = {}
        for level, directory in enumerate(self._directories):
            for path in _spec_files(directory):
                spec = self._spec(path)
                if isinstance(spec, str):
                    faults[path] = spec
                    continue
                for device, edits in spec.devices.items():
                    name = f"{spec.kind}={device}"
                    known = found.get(name)
                    rival = known.path if known is not None and known.level == level else None
                    found[name] = _Found(path, level, (spec.edits, edits), rival)
        return found, faults

    def _spec(self, path: Path) -> CdiSpec | str:
        """The spec in a file, or what is wrong with the file."""
        try:
            status = path.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            known = self._read.get(path)
            if known is None or known[0] != version:
                known = self._read[path] = (version, _read_spec(path))
            return known[1]
        except OSError as error:
            return error.strerror or str(error)

    def _missing(self, name: str, faults: Mapping[Path, str]) -> str:
        text = f"no CDI file in {', '.join(map(str, self._directories))} describes device {name}"
        return "; ".join((text, *(f"{path} cannot be read: {fault}" for path, fault in faults.items())))


def _read_spec(path: Path) -> CdiSpec | str:
    try:
        return decode_spec(path.read_bytes(), path.suffix)
    except BadCdiSpec as error:
        return str(error)


def _spec_files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    except OSError:
        return []
