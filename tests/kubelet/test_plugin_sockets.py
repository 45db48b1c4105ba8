"""How a kubelet finds the sockets of plugins."""

from __future__ import annotations

import socket
from pathlib import Path

from dralloc.node.kubelet.plugin_sockets import find_sockets
from tests.support.node_cluster import short_directory


def test_only_sockets_below_the_directory_are_found() -> None:
    with short_directory() as directory, socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        (directory / "driver").mkdir()
        one.bind(str(directory / "driver" / "reg.sock"))
        two.bind(str(directory / ".hidden.sock"))
        (directory / "file").touch()
        (directory / "link.sock").symlink_to(directory / "driver" / "reg.sock")
        assert list(find_sockets(directory)) == [str(directory / "driver" / "reg.sock")]
        assert find_sockets(Path("/nowhere/at/all")) == {}
