"""Bindings that were answered and that no watch has shown: after a list, the server is asked for each of them.

A restored backup may have undone the binding. Neither the list nor a watch says so: they show the pod as it was known before the binding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dralloc.api.pod_v1 import Pod
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import key_of
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.scheduler.state.placed_pods import PlacedPod, PlacedPods, pod_key

PODS: Final = resource_for(Pod)
# When a pod is looked at again whose binding is being written, or that could not be read.
RETRY_S: Final = 1.0


class UnseenBindings:
    """`is_writing` is true while a decision about the pod is being written; `undone` is told pods whose binding is gone."""

    def __init__(
        self,
        calls: ApiCalls,
        placed: PlacedPods,
        *,
        is_writing: Callable[[Pod], bool],
        undone: Callable[[PlacedPod], None],
    ) -> None:
        self._calls = calls
        self._placed = placed
        self._is_writing = is_writing
        self._undone = undone
        self._is_due = asyncio.Event()

    def listed(self) -> None:
        """All pods were listed again."""
        self._is_due.set()

    async def run(self) -> None:
        """Checks until cancelled."""
        unsettled: list[PlacedPod] = []
        while True:
            if not unsettled:
                await self._is_due.wait()
            if self._is_due.is_set():
                # Also while some are unsettled: a pod may wait for its devices for ten minutes.
                self._is_due.clear()
                unsettled = self._placed.assumed()
            unsettled = [each for each in unsettled if not await self._is_settled(each)]
            if unsettled:
                await asyncio.sleep(RETRY_S)

    async def _is_settled(self, placed: PlacedPod) -> bool:
        """False if it is not known yet whether the pod, which was assumed to be on a node, is bound."""
        if not self._is_assumed(placed):
            return True
        if self._is_writing(placed.pod):
            return False
        try:
            found = await self._calls.get(PODS, key_of(placed.pod))
        except NotFound:
            return True
        except (ApiError, TransportError):
            return False
        if found.metadata.uid == placed.uid and not found.spec.node_name and self._is_assumed(placed):
            self._undone(placed)
        return True

    def _is_assumed(self, placed: PlacedPod) -> bool:
        """True if nothing has shown or decided anything else since."""
        return self._placed.find(pod_key(placed.pod)) is placed
