"""Where a pod goes in a what-if, and with which devices; or why it goes nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where a pod would go, and its claims as they would be then. Those in `new` are allocated with it."""

    pod: Pod
    node: str
    claims: tuple[ResourceClaim, ...]
    new: frozenset[ClaimId]


@dataclass(frozen=True, slots=True)
class UnplacedPod:
    """A pod that would not be placed, and the scheduler's reason. `is_error`: no node can help before it is corrected."""

    pod: Pod
    message: str
    is_error: bool = False


class ShareIds:
    """Share IDs that depend on the subject alone, so that the same question gets the same answer."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return str(uuid5(NAMESPACE_URL, f"dralloc/{self._subject}/{self._count}"))
