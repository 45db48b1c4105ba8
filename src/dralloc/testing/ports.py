"""Ports of loopback for programs that must be told theirs before they start."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
