"""Ports of loopback for programs that must be told theirs before they start, or that come back to the same one.

Those that the system gives out to everybody who connects somewhere would be taken by others in between. These are from below them.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from random import SystemRandom
from typing import Final

LOWEST: Final = 10_000
HIGHEST: Final = 30_000


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    while True:
        port = SystemRandom().randint(LOWEST, HIGHEST)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
