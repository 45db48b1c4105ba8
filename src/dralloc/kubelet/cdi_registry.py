"""CDI files: what a container gets for a device name, as drivers wrote it down (Container Device Interface).

A file describes devices of one kind (`vendor/class`). A device is used by its full name, `vendor/class=name`, and brings its own edits
and those of its file. Where two directories describe the same device, the later directory counts; within one directory
that is a conflict, and nobody gets the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

DEFAULT_DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
SUFFIXES: Final = (".json", ".yaml", ".yml")


class BadDevices(Exception):
    """The devices that a container needs cannot be had from the files; the message says which and why."""


class DeviceNode(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    host_path: str = ""


class Mount(msgspec.Struct, frozen=True, rename="camel"):
    host_path: str
    container_path: str


class ContainerEdits(msgspec.Struct, frozen=True, rename="camel"):
    """What a device asks for. Only that something else is asked for is read of the rest."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Any, ...] = ()
    net_devices: tuple[Any, ...] = ()
    intel_rdt: dict[str, Any] | None = None
    additional_gids: tuple[int, ...] = msgspec.field(default=(), name="additionalGids")


class _Device(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_edits: ContainerEdits = msgspec.field(default_factory=ContainerEdits)


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    cdi_version: str
    kind: str
    devices: tuple[_Device, ...] = ()
    container_edits: ContainerEdits = msgspec.field(default_factory=ContainerEdits)


@dataclass(frozen=True, slots=True)
class DeviceEdits:
    """All edits for some devices, together. `unsupported` names those that need a container engine."""

    environment: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Described:
    """A device in a file, and the edits that come with it."""

    path: Path
    level: int
    edits: tuple[ContainerEdits, ...]
    conflicts_with: Path | None = None


class CdiRegistry:
    """The devices that the files in some directories describe. Files are read again when they have changed."""

    def __init__(self, directories: Iterable[Path] = DEFAULT_DIRECTORIES) -> None:
        self._directories = tuple(directories)
        self._read: dict[Path, tuple[tuple[int, int, int], _Spec | str]] = {}

    def edits_for(self, cdi_ids: Iterable[str]) -> DeviceEdits:
        """What the devices bring, in their order; a file's own edits once."""
        wanted = tuple(dict.fromkeys(cdi_ids))
        if not wanted:
            return DeviceEdits()
        described, faults = self._describe()
        chosen: list[ContainerEdits] = []
        for cdi_id in wanted:
            device = described.get(cdi_id)
            if device is None:
                raise BadDevices(self._missing(cdi_id, faults))
            if device.conflicts_with is not None:
                raise BadDevices(f"CDI device {cdi_id} is described in {device.conflicts_with} and in {device.path}")
            chosen += [edits for edits in device.edits if not any(edits is other for other in chosen)]
        return merge_edits(chosen)

    def _describe(self) -> tuple[dict[str, _Described], dict[Path, str]]:
        described: dict[str, _Described] = {}
        faults: dict[Path, str] = {}
        for level, directory in enumerate(self._directories):
            for path in _files(directory):
                spec = self._spec(path)
                if isinstance(spec, str):
                    faults[path] = spec
                    continue
                for device in spec.devices:
                    cdi_id = f"{spec.kind}={device.name}"
                    known = described.get(cdi_id)
                    rival = known.path if known is not None and known.level == level else None
                    edits = (spec.container_edits, device.container_edits)
                    described[cdi_id] = _Described(path, level, edits, rival)
        return described, faults

    def _spec(self, path: Path) -> _Spec | str:
        """The content of a file, or what is wrong with it."""
        try:
            found = path.stat()
            version = (found.st_mtime_ns, found.st_size, found.st_ino)
            known = self._read.get(path)
            if known is None or known[0] != version:
                known = self._read[path] = (version, read_spec(path.read_bytes(), path.suffix))
            return known[1]
        except OSError as error:
            return error.strerror or str(error)

    def _missing(self, cdi_id: str, faults: Mapping[Path, str]) -> str:
        where = ", ".join(map(str, self._directories))
        text = f"no CDI file in {where} describes device {cdi_id}"
        for path, fault in faults.items():
            text += f"; {path} cannot be read: {fault}"
        return text


def read_spec(content: bytes, suffix: str) -> _Spec | str:
    """A CDI specification, or what is wrong with it."""
    try:
        if suffix == ".json":
            return msgspec.json.decode(content, type=_Spec)
        return msgspec.convert(yaml.safe_load(content), _Spec)
    except (msgspec.MsgspecError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        return " ".join(str(error).split())


def merge_edits(parts: Iterable[ContainerEdits]) -> DeviceEdits:
    environment: dict[str, str] = {}
    nodes: dict[str, DeviceNode] = {}
    mounts: dict[str, Mount] = {}
    unsupported: dict[str, None] = {}
    for edits in parts:
        environment |= {name: value for name, _, value in (entry.partition("=") for entry in edits.env)}
        nodes |= {node.path: node for node in edits.device_nodes}
        mounts |= {mount.container_path: mount for mount in edits.mounts}
        unsupported |= dict.fromkeys(_needs_an_engine(edits))
    return DeviceEdits(environment, tuple(nodes.values()), tuple(mounts.values()), tuple(unsupported))


def _needs_an_engine(edits: ContainerEdits) -> list[str]:
    asked = {
        "mounts": edits.mounts,
        "hooks": edits.hooks,
        "netDevices": edits.net_devices,
        "intelRdt": edits.intel_rdt,
        "additionalGids": edits.additional_gids,
    }
    return [name for name, value in asked.items() if value]


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    except OSError:
        return []
