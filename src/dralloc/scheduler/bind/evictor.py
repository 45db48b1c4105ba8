"""Writes a plan of preemption: first the pod's nominated node, then the end of each victim.

A scheduler that stops between two steps leaves nothing that must be undone. The nominated node is stored before a victim ends, so the
next leader keeps the room for the pod; victims that are not evicted yet are planned again with the pod's next attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from dralloc.client.api_calls import ApiCalls, PatchType
from dralloc.client.known_resources import resource_for
from dralloc.client.pod_disruption import disrupt, disruption_target
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import key_of, version_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1beta1 import DISRUPTION_TARGET, PodGroup
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.scheduler.contract import PlannedVictim

PODS: Final = resource_for(Pod)
POD_GROUPS: Final = resource_for(PodGroup)
REASON: Final = "PreemptionByScheduler"


class Evictor:
    def __init__(self, calls: ApiCalls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock

    async def nominate(self, pod: Pod, node: str, *, evicts: bool = False) -> str | None:
        """Stores the pod's nominated node, or that it has none; returns why that failed.

        If it `evicts`, the node is written even if the pod is shown with it: the watch may not show yet that it was removed.
        """
        if not evicts and pod.status.nominated_node_name == node:
            return None
        try:
            # By UID alone: the pod's own conditions are written at the same time, and a late nomination keeps room for one attempt.
            patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node or None}}
            await self._calls.patch(PODS, key_of(pod), patch, type=PatchType.STRATEGIC, subresource="status")
        except NotFound as gone:
            # Nothing is evicted for a pod that no longer exists.
            return f"cannot write the nominated node: {gone}" if node else None
        except (ApiError, TransportError) as error:
            return f"cannot write the nominated node: {error}"
        return None

    async def evict(
        self, pod: Pod, victims: Sequence[PlannedVictim], groups: Sequence[PodGroup] = ()
    ) -> tuple[list[PlannedVictim], str | None]:
        """Evicts the victims; returns those whose end has begun, and why others were not evicted.

        `groups` are evicted as a whole: their conditions say so before the first of their pods ends.
        """
        for group in groups:
            if (failure := await self._mark_group(pod, group)) is not None:
                return [], failure
        outcomes = await asyncio.gather(*(self._end(pod, victim) for victim in victims))
        ended = [victim for victim, failure in zip(victims, outcomes, strict=True) if failure is None]
        return ended, next(filter(None, outcomes), None)

    async def _mark_group(self, pod: Pod, group: PodGroup) -> str | None:
        if any(each.type == DISRUPTION_TARGET for each in group.status.conditions):
            return None
        message = f"{pod.spec.scheduler_name}: preempting to accommodate a higher priority pod"
        condition = disruption_target(REASON, message, self._clock.now())
        patch = {"metadata": version_of(group), "status": {"conditions": [condition]}}
        try:
            await self._calls.patch(POD_GROUPS, key_of(group), patch, type=PatchType.STRATEGIC, subresource="status")
        except NotFound:
            # The group is gone; its pods are evicted like others.
            return None
        except (ApiError, TransportError) as error:
            return f"cannot write the condition of pod group {group.metadata.name}: {error}"
        return None

    async def _end(self, pod: Pod, victim: PlannedVictim) -> str | None:
        message = f"{pod.spec.scheduler_name}: preempting to accommodate a higher priority pod"
        try:
            await disrupt(self._calls, victim.pod, REASON, message, self._clock.now())
        except NotFound:
            return None
        except (ApiError, TransportError) as error:
            return f"cannot evict pod {victim.pod.metadata.namespace}/{victim.pod.metadata.name}: {error}"
        return None
