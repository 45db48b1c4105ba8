"""What a device changes in a container that uses it: environment, device nodes, mounts, hooks, network interfaces.

The terms, and the JSON, are those of the Container Device Interface (CDI), which container runtimes read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from dralloc.api.wire import Wire


class DeviceNode(Wire):
    """A device of the host: `path` in the container, and where it differs `host_path` on the host."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    permissions: str = ""


class Mount(Wire):
    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(Wire):
    """A program that the runtime runs: `createRuntime`, `startContainer`, `poststop`, and so on."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class NetDevice(Wire):
    """An interface of the host that moves into the container, there under `name`."""

    host_interface_name: str
    name: str


class ContainerEdits(Wire):
    """All changes that one device makes; `env` maps names to values."""

    env: dict[str, str] = msgspec.field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    additional_gids: tuple[int, ...] = msgspec.field(default=(), name="additionalGids")

    @property
    def is_empty(self) -> bool:
        return self == ContainerEdits()


def find_faults(edits: ContainerEdits) -> Iterator[str]:
    """What a container runtime would not take."""
    for name in edits.env:
        if not name or "=" in name or "\0" in name:
            yield f"{name!r} cannot be the name of an environment variable"
    for paths, what in (
        ((node.path for node in edits.device_nodes), "device node"),
        ((mount.container_path for mount in edits.mounts), "mount"),
        ((hook.path for hook in edits.hooks), "hook"),
    ):
        for path in paths:
            if not path.startswith("/"):
                yield f"the path of a {what} must be absolute: {path!r}"


# --- CDI ----------------------------------------------------------------------------------------------------------

# A container runtime refuses a file whose version is older than what the file uses, so it says the oldest that fits.
# Names of devices may begin with a digit from 0.5.0 on, and ours begin with the UID of a claim.
_OLDEST: Final = (0, 5, 0)
_WITH_GIDS: Final = (0, 7, 0)
_WITH_NET_DEVICES: Final = (1, 1, 0)

_QUALIFIED_NAME: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?=[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"
)


def is_cdi_name(text: str) -> bool:
    """Whether this is a device as container runtimes name it: `vendor/class=device`."""
    return _QUALIFIED_NAME.fullmatch(text) is not None


def cdi_file(kind: str, devices: Mapping[str, ContainerEdits]) -> bytes:
    """The text of a CDI file that has these devices."""
    document = {
        "cdiVersion": ".".join(map(str, _version(devices.values()))),
        "kind": kind,
        "devices": [{"name": name, "containerEdits": _edits(edits)} for name, edits in devices.items()],
    }
    return msgspec.json.encode(document)


def _version(devices: Iterable[ContainerEdits]) -> tuple[int, int, int]:
    return max((_version_of(edits) for edits in devices), default=_OLDEST)


def _version_of(edits: ContainerEdits) -> tuple[int, int, int]:
    if edits.net_devices:
        return _WITH_NET_DEVICES
    return _WITH_GIDS if edits.additional_gids else _OLDEST


def _edits(edits: ContainerEdits) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(edits)
    if edits.env:
        document["env"] = [f"{name}={value}" for name, value in edits.env.items()]
    return document
