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
