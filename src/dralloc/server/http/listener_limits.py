"""The limits of the listener: what one client may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEAD_BYTES_MAX: Final = 64 * 1024
HEAD_TIME_MAX_S: Final = 15.0
# A client that reads nothing of a pending response for so long is disconnected.
STALLED_READER_S: Final = 60.0
# What waits for one client before it counts as one that does not read, and gets no more. The default is 512 KiB with TLS, which
# thousands of watches may each use.
WAITING_BYTES_MAX: Final = 64 * 1024
CONNECTIONS_MAX: Final = 16_384
HANDSHAKE_TIME_MAX_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What clients may use before they are refused or disconnected."""

    connections_max: int = CONNECTIONS_MAX
    handshake_time_max_s: float = HANDSHAKE_TIME_MAX_S
    head_bytes_max: int = HEAD_BYTES_MAX
    head_time_max_s: float = HEAD_TIME_MAX_S
    stalled_reader_s: float = STALLED_READER_S
