"""Provokes write conflicts: changes claims right after other components wrote them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.client.work_queue import WorkQueue, work
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.errors import ApiError

CLAIMS: Final = resource_for(ResourceClaim)
MARK: Final = "simulator/conflict"
# Well below one, because its own changes are among those that it sees.
TOUCH_PROBABILITY: Final = 0.3


class ConflictInjector:
    """Changes an annotation of claims that have just changed."""

    def __init__(self, calls: ApiCalls, random: Random) -> None:
        self._calls = calls
        self._random = random
        self._claims: Informer[ResourceClaim] = Informer()
        self._queue: WorkQueue[ObjectKey] = WorkQueue()

    async def run(self) -> None:
        self._claims.subscribe(self._on_claim)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Reflector(self._calls, CLAIMS, self._claims).run())
            tasks.create_task(work(self._queue, self._touch, lambda *_: None))

    def _on_claim(self, _: ResourceClaim | None, after: ResourceClaim | None) -> None:
        if after is not None and self._random.random() < TOUCH_PROBABILITY:
            self._queue.add(key_of(after))

    async def _touch(self, key: ObjectKey) -> None:
        patch = {"metadata": {"annotations": {MARK: str(self._random.random())}}}
        try:
            await self._calls.patch(CLAIMS, key, patch)
        except (ApiError, TransportError):
            return
