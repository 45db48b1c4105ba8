"""Deadlines and limits of a kubelet in its calls to plugins, so that a plugin which misbehaves cannot harm the node's agent."""

from __future__ import annotations

from typing import Final

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
