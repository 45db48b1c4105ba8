"""Deadlines and limits of a kubelet in its calls to plugins."""

from __future__ import annotations

from typing import Final

DIAL_TIMEOUT_S: Final = 10.0
GET_INFO_TIMEOUT_S: Final = 1.0
NOTIFY_TIMEOUT_S: Final = 5.0
# NodePrepareResources and NodeUnprepareResources.
CALL_TIMEOUT_S: Final = 45.0
# Characters of a message about the health of a device; the rest is cut off.
HEALTH_MESSAGE_LENGTH_MAX: Final = 1024
