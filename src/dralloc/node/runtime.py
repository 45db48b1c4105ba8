"""The interface of container runtimes, implemented by `simulated_runtime` and `process_runtime`.

A runtime starts and stops containers and reports events; `pod_plan` decides what to do.
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
    """A container to start: its pod, the CDI names of its devices, and its restart count."""

    pod: NodePod
    container: NodeContainer
    cdi_ids: tuple[str, ...] = ()
    restarts: int = 0


class CannotStart(Exception):
    """The container cannot be started; reason and message are for its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class RuntimeListener(Protocol):
    """Receives the events of containers."""

    def container_started(self, pod_uid: str, container: str, at: datetime) -> None: ...

    def container_exited(self, pod_uid: str, container: str, exit: Exit) -> None: ...


class Runtime(Protocol):
    """Runs containers, and reports their events to one listener."""

    def listen(self, listener: RuntimeListener) -> None: ...

    def limits(self, pod: NodePod, cdi_ids: Sequence[str]) -> str:
        """What the pod and its CDI devices ask for and the runtime does not do, for the pod's owner; empty if there is nothing."""
        ...

    async def start(self, launch: Launch) -> None:
        """Start the container; raises CannotStart. `container_started` reports when it runs."""
        ...

    def stop(self, pod_uid: str, container: str, grace_s: float) -> None:
        """Stop the container, and kill it after the grace period. A second call can only shorten the period."""
        ...

    def adopt(self, pod: NodePod, container: str, started_at: datetime) -> bool:
        """Continue with a container that an earlier process started; False if it does not run any more."""
        ...

    def forget(self, pod_uid: str) -> None:
        """Remove everything that belongs to the pod, which was deleted."""
        ...
