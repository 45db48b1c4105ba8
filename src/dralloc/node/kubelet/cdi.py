"""CDI (Container Device Interface): the edits that a device makes to a container, and the spec files that carry them.

Drivers write spec files, container runtimes read them. Names and JSON are those of the CDI specification. A file describes devices of
one kind (`vendor/class`); a container gets a device by its full name, `vendor/class=name`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dralloc.kube.wire import Wire
from dralloc.primitives.decoders import UNREADABLE

# Where container runtimes look for spec files; a later directory overrides an earlier one.
CDI_DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))

# A container runtime refuses a file whose version is older than a feature that the file uses, so a file states the oldest that fits.
# Device names may begin with a digit from 0.5.0 on, and those of drivers begin with the UID of a claim.
_OLDEST: Final = (0, 5, 0)
_WITH_GIDS_OR_RDT: Final = (0, 7, 0)
_WITH_NET_DEVICES: Final = (1, 1, 0)

_QUALIFIED_NAME: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?=[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"
)


class DeviceNode(Wire):
    """A device node of the host: `path` in the container, and `host_path` on the host if it differs."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    permissions: str = ""


class Mount(Wire):
    """A file or directory of the host in the container, with mount options such as `ro` and `rbind`."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(Wire):
    """A program that the container runtime runs at `hook_name`: `createRuntime`, `startContainer`, `poststop`, …"""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class NetDevice(Wire):
    """A network interface of the host that moves into the container, where it is called `name`."""

    host_interface_name: str
    name: str


class ContainerEdits(Wire):
    """All edits of one device. `env` maps names to values; a spec file has `NAME=value` entries instead."""

    env: dict[str, str] = msgspec.field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    additional_gids: tuple[int, ...] = ()
    intel_rdt: dict[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        """True if containers get nothing."""
        return self == ContainerEdits()


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiSpec:
    """A spec file: devices of one kind by their names, and edits that come with each of them."""

    kind: str
    devices: Mapping[str, ContainerEdits]
    edits: ContainerEdits


class BadCdiSpec(ValueError):
    """The file is not a CDI spec; the message says why."""


def is_cdi_name(text: str) -> bool:
    """True for the full name of a device, `vendor/class=device`."""
    return _QUALIFIED_NAME.fullmatch(text) is not None


def find_edit_faults(edits: ContainerEdits) -> Iterator[str]:
    """What a container runtime would refuse."""
    for name in edits.env:
        if not name or "=" in name or "\0" in name:
            yield f"{name!r} is not a valid name for an environment variable"
    for paths, what in (
        ((node.path for node in edits.device_nodes), "device node"),
        ((mount.container_path for mount in edits.mounts), "mount"),
        ((hook.path for hook in edits.hooks), "hook"),
    ):
        for path in paths:
            if not path.startswith("/"):
                yield f"the path of a {what} must be absolute: {path!r}"


# --- Spec files ---------------------------------------------------------------------------------------------------


class _DeviceDocument(Wire):
    name: str
    container_edits: dict[str, Any] = msgspec.field(default_factory=dict)


class _SpecDocument(Wire):
    cdi_version: str
    kind: str
    devices: tuple[_DeviceDocument, ...] = ()
    container_edits: dict[str, Any] = msgspec.field(default_factory=dict)


def encode_spec(kind: str, devices: Mapping[str, ContainerEdits]) -> bytes:
    """A spec file with these devices, as JSON."""
    version = max(map(_version_of, devices.values()), default=_OLDEST)
    document = _SpecDocument(
        cdi_version=".".join(map(str, version)),
        kind=kind,
        devices=tuple(
            _DeviceDocument(name=name, container_edits=_to_document(edits)) for name, edits in devices.items()
        ),
    )
    return msgspec.json.encode(document)


def decode_spec(content: bytes, suffix: str) -> CdiSpec:
    """The spec in a file with this suffix; raises `BadCdiSpec`."""
    try:
        tree = msgspec.json.decode(content) if suffix == ".json" else yaml.safe_load(content)
        document = msgspec.convert(tree, _SpecDocument)
        return CdiSpec(
            kind=document.kind,
            devices={device.name: _from_document(device.container_edits) for device in document.devices},
            edits=_from_document(document.container_edits),
        )
    except (*UNREADABLE, yaml.YAMLError) as error:
        raise BadCdiSpec(" ".join(str(error).split())) from None


def merge_edits(parts: Iterable[ContainerEdits]) -> ContainerEdits:
    """All edits together; where two set the same variable, device node or mount, the later one counts."""
    parts = tuple(parts)
    return ContainerEdits(
        env={name: value for edits in parts for name, value in edits.env.items()},
        device_nodes=tuple({node.path: node for edits in parts for node in edits.device_nodes}.values()),
        mounts=tuple({mount.container_path: mount for edits in parts for mount in edits.mounts}.values()),
        hooks=tuple(hook for edits in parts for hook in edits.hooks),
        net_devices=tuple(device for edits in parts for device in edits.net_devices),
        additional_gids=tuple(dict.fromkeys(gid for edits in parts for gid in edits.additional_gids)),
        intel_rdt=next((edits.intel_rdt for edits in reversed(parts) if edits.intel_rdt), None),
    )


def _version_of(edits: ContainerEdits) -> tuple[int, int, int]:
    if edits.net_devices:
        return _WITH_NET_DEVICES
    return _WITH_GIDS_OR_RDT if edits.additional_gids or edits.intel_rdt else _OLDEST


def _to_document(edits: ContainerEdits) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(edits)
    if edits.env:
        document["env"] = [f"{name}={value}" for name, value in edits.env.items()]
    return document


def _from_document(document: dict[str, Any]) -> ContainerEdits:
    entries = msgspec.convert(document.get("env", ()), tuple[str, ...])
    env = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
    return msgspec.convert({**document, "env": env}, ContainerEdits)
