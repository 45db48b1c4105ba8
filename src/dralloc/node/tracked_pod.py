"""A pod of this node, the progress with it, and whether it must end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from dralloc.kube.pod_v1 import PodCondition
from dralloc.kube.timestamps import parse_timestamp
from dralloc.node.claims import PodStage
from dralloc.node.pod_plan import ContainerRun
from dralloc.node.pod_status import Waiting
from dralloc.node.pod_view import NodePod

# The grace period of a force-deleted pod.
FORCED_GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Ending:
    """The pod must end: its grace period, and the reason and message for its status."""

    grace_s: float
    ended: tuple[str, str] | None = None


@dataclass(slots=True, eq=False)
class TrackedPod:
    pod: NodePod
    is_gone: bool = False
    is_prepared: bool = False
    # Its claims may have other devices than those that are prepared for it since an earlier agent: a restored backup undoes allocations.
    is_unchecked: bool = False
    # It was given other devices: it ends, and begins again with these.
    starts_over: bool = False
    # The node is done with the pod, but the informer may still show an older state.
    is_over: bool = False
    runs: dict[str, ContainerRun] = field(default_factory=dict)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    # The last written status, and the parts that the next one continues.
    sent: dict[str, Any] | None = None
    started_at: str | None = None
    conditions: tuple[PodCondition, ...] = ()
    preparing: asyncio.Task[None] | None = None
    # When its last container had ended.
    stopped_at: datetime | None = None

    @property
    def stage(self) -> PodStage:
        if self.is_over:
            return PodStage.ENDED
        is_ending = self.is_gone or self.pod.is_finished or self.starts_over
        return PodStage.ENDING if is_ending else PodStage.ACTIVE

    @property
    def grace_s(self) -> float:
        return float(self.pod.spec.termination_grace_period_seconds or 0)

    @property
    def deadline(self) -> datetime | None:
        if self.pod.spec.active_deadline_seconds is None or self.started_at is None:
            return None
        return parse_timestamp(self.started_at) + timedelta(seconds=self.pod.spec.active_deadline_seconds)

    def ending(self, now: datetime) -> Ending | None:
        """How the pod ends; None if it goes on."""
        metadata = self.pod.metadata
        if self.is_gone:
            return Ending(FORCED_GRACE_S)
        if metadata.deletion_timestamp is not None:
            left_s = (parse_timestamp(metadata.deletion_timestamp) - now).total_seconds()
            return Ending(max(min(left_s, float(metadata.deletion_grace_period_seconds or 0)), 0.0))
        if self.starts_over:
            return Ending(self.grace_s)
        if self.deadline is not None and now >= self.deadline:
            message = "Pod was active on the node longer than the specified deadline"
            return Ending(self.grace_s, ("DeadlineExceeded", message))
        return None
