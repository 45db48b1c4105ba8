"""Ports of loopback for programs that need a fixed port.

They are below the ephemeral range, from which the system would give them to other connections in the meantime.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from random import SystemRandom
from typing import Final

LOWEST: Final = 10_000
HIGHEST: Final = 30_000


def free_port() -> int:
    """A port on which no program listens at the moment."""
    while True:
        port = SystemRandom().randint(LOWEST, HIGHEST)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
