"""Where the sockets of plugins are: the directories of a kubelet, and how it finds the sockets in them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Directories inside the directory of a kubelet: one for each driver, and the one in which drivers register.
PLUGINS: Final = "plugins"
REGISTRY: Final = "plugins_registry"
KUBELET_DIR: Final = Path("/var/lib/kubelet")
# The address of a Unix socket has 108 bytes, the last of which is zero.
SOCKET_PATH_LENGTH_MAX: Final = 107


@dataclass(frozen=True, slots=True)
class SocketIdentity:
    """One particular socket. A socket that is created again at the same path has another identity."""

    inode: int
    changed_ns: int


def find_sockets(directory: Path) -> dict[str, SocketIdentity]:
    """The sockets in the directory and below it, by path, except hidden ones."""
    return dict(_sockets_below(str(directory)))


def why_silent(path: str) -> str:
    """Why no gRPC server has answered at the socket in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            # So many connections wait to be accepted that there is no place for another one.
            pass
        except OSError:
            return f"nothing listens at {path}"
    return f"a program listens at {path}, but does not answer as a gRPC server: it hangs, or speaks another protocol"


def _sockets_below(directory: str) -> Iterator[tuple[str, SocketIdentity]]:
    pending = [directory]
    while pending:
        # Entries that disappear during the scan are ignored.
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISSOCK(found.st_mode):
                        yield entry.path, SocketIdentity(found.st_ino, found.st_ctime_ns)
                    elif stat.S_ISDIR(found.st_mode):
                        pending.append(entry.path)


# --- Plugin limits --------------------------------------------------------------------------------------------------
# Deadlines and limits of a kubelet in its calls to plugins, so that a plugin which misbehaves cannot harm the
# node's agent.


DIAL_TIMEOUT_S: Final = 10.0
GET_INFO_TIMEOUT_S: Final = 1.0
NOTIFY_TIMEOUT_S: Final = 5.0
# NodePrepareResources and NodeUnprepareResources.
CALL_TIMEOUT_S: Final = 45.0
# How long a report about the health of a device counts, if it does not say so itself.
HEALTH_TIMEOUT_S: Final = 30.0
# Characters of a message about the health of a device; the rest is cut off.
HEALTH_MESSAGE_LENGTH_MAX: Final = 1024
# Characters of an error that a plugin reports; it is shown in events and logs.
ERROR_LENGTH_MAX: Final = 1024
# Characters of a pool's and of a device's name.
POOL_NAME_LENGTH_MAX: Final = 253
DEVICE_NAME_LENGTH_MAX: Final = 63
# The answer to GetInfo: a name, a path and some versions.
INFO_BYTES_MAX: Final = 4096
# One message of a plugin, which is the limit of gRPC in Go.
MESSAGE_BYTES_MAX: Final = 4 << 20
# What a plugin answers for one claim, which has at most 32 devices: the status of each container that uses the claim lists what is answered.
CLAIM_ANSWER_BYTES_MAX: Final = 64 << 10


def find_info_fault(size: int) -> str:
    """What is wrong with an answer to GetInfo of this size; empty if nothing is."""
    return (
        f"GetInfo answered {size:,} bytes, and may answer at most {INFO_BYTES_MAX:,}" if size > INFO_BYTES_MAX else ""
    )


def shortened(text: str) -> str:
    """The text of a plugin, not longer than an error may be."""
    return text if len(text) <= ERROR_LENGTH_MAX else f"{text[: ERROR_LENGTH_MAX - 1]}…"
