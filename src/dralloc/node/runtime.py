"""What runs containers: one narrow interface, two implementations (`runtime_fake`, `runtime_process`).

A runtime does as it is told and reports what happens; what to do next is decided in `pods`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from dralloc.node.pod_plan import Exit
from dralloc.node.pod_view import NodeContainer, NodePod


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A container to be started: its pod, the names of its devices, and how often it was started before."""

    pod: NodePod
    container: NodeContainer
    cdi_ids: tuple[str, ...] = ()
    restarts: int = 0


class CannotStart(Exception):
    """The container cannot be started as it is; reason and message are what its status says."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class RuntimeListener(Protocol):
    """Told what happens to containers."""

    def container_started(self, pod_uid: str, container: str, at: datetime) -> None: ...

    def container_exited(self, pod_uid: str, container: str, exit: Exit) -> None: ...


class Runtime(Protocol):
    """Runs containers, and reports to whoever listens."""

    def listen(self, listener: RuntimeListener) -> None: ...

    def limits(self, pod: NodePod, cdi_ids: Sequence[str]) -> str:
        """What the pod and its CDI devices ask for and the runtime does not do, for the pod's owner; empty if there is nothing."""
        ...

    async def start(self, launch: Launch) -> None:
        """Begin to start the container; raises CannotStart."""
        ...

    def stop(self, pod_uid: str, container: str, grace_s: float) -> None:
        """Ask the container to end, and end it when the grace period is over. Asking again may only shorten that."""
        ...

    def adopt(self, pod: NodePod, container: str, started_at: datetime) -> bool:
        """Take up a container that an earlier process started; false where it does not run any more."""
        ...

    def forget(self, pod_uid: str) -> None:
        """The pod is gone from the API: nothing of it is needed any more."""
        ...
