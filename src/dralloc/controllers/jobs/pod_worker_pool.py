"""The pods of one job as its controller works on them: created and deleted many at a time, none of them twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from dralloc.api.batch_v1 import Job
from dralloc.api.pod_claims import controller_of
from dralloc.api.pod_v1 import Pod
from dralloc.api.unstructured_object import UnstructuredObject, view
from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.jobs.plan import INDEXED
from dralloc.controllers.jobs.pod_template import PodNames, pod_document
from dralloc.controllers.jobs.pod_tracker import PodTracker
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import AlreadyExists, ApiError, NotFound

PODS: Final = resource_for(Pod)

# Requests of one job under way at a time.
TOGETHER_MAX: Final = 32

Item = TypeVar("Item")
Place = tuple[str, int | None]


@dataclass(slots=True)
class PodWorkerPool:
    """Of one job, for as long as we are in charge of it."""

    calls: ApiCalls
    clock: Clock
    pods: Informer[Pod]
    tally: PodTracker
    names: PodNames
    # Pods that were refused, or whose creation was not answered, with their indexes. They are the next to be created:
    # then shows whether they exist.
    unmade: dict[str, int | None] = field(default_factory=dict)
    # When the job's status was last written, and what was last told about it, by reason.
    written_at: datetime | None = None
    told: dict[str, str] = field(default_factory=dict)
    _view: Job | None = None

    def view_of(self, job: UnstructuredObject) -> Job:
        """What we know of the job. It is asked at every change of a pod, and changes far less often."""
        if self._view is None or self._view.metadata.resource_version != job.metadata.resource_version:
            self._view = view(job, Job)
        return self._view

    async def create(self, job: UnstructuredObject, count: int) -> None:
        places = self._places(job, count)

        async def create(place: Place) -> None:
            await self._create_pod(job, *place)

        await _many(create, places)

    def _places(self, job: UnstructuredObject, count: int) -> list[Place]:
        """Names for the next pods, and their indexes where the job counts them."""
        spec = self.view_of(job).spec
        if spec.completion_mode != INDEXED:
            tried = [*self.unmade.items()][:count]
            return tried + [(self.names.next(None), None) for _ in range(count - len(tried))]
        names = {index: name for name, index in self.unmade.items()}
        vacant = self.tally.slots.vacant(count, spec.completions or 0)
        return [(names.get(index) or self.names.next(index), index) for index in vacant]

    async def _create_pod(self, job: UnstructuredObject, name: str, index: int | None) -> None:
        self.tally.expect(name, index, self.clock.now())
        self.unmade[name] = index
        try:
            await self.calls.create(PODS, pod_document(job, name, index))
        except AlreadyExists:
            # Created before, and the answer was lost; or it is another's, and the next one gets another name.
            pod = await self.calls.get(PODS, ObjectKey(job.metadata.namespace, name))
            owner = controller_of(pod.metadata)
            if owner is None or owner.uid != job.metadata.uid:
                self.tally.forget(name)
        except (ApiError, TransportError):
            self.tally.forget(name)
            raise
        self.unmade.pop(name, None)
        if self.pods.get(name, job.metadata.namespace) is not None:
            # Shown before the server answered.
            self.tally.expected.pop(name, None)

    async def dismiss(self, job: UnstructuredObject, count: int) -> None:
        """Delete active pods: those that wait for a node first, they have done the least."""
        active = [
            pod
            for pod in self.pods.by("controller", job.metadata.uid)
            if not pod.is_finished and not pod.is_terminating
        ]
        # Before all others those that were to be deleted already: where our copy is old or an answer was lost, others
        # must not be deleted in their place.
        active.sort(key=lambda pod: (pod.metadata.uid not in self.tally.dismissed, bool(pod.spec.node_name)))

        async def delete(pod: Pod) -> None:
            self.tally.dismissed.add(pod.metadata.uid)
            with suppress(NotFound):
                await self.calls.delete(PODS, key_of(pod), uid=pod.metadata.uid)

        await _many(delete, active[:count])


async def _many(do: Callable[[Item], Awaitable[None]], items: Sequence[Item]) -> None:
    """Do it to all, several at a time; after a failure no more are begun."""
    done = 0
    for size in batches(len(items), TOGETHER_MAX):
        outcomes = await asyncio.gather(*map(do, items[done : done + size]), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        done += size


def batches(count: int, most: int) -> Iterator[int]:
    """How many to do at a time: few at first, so that what cannot be done is not tried hundreds of times at once."""
    size = 1
    while count > 0:
        now = min(size, count)
        yield now
        count -= now
        size = min(2 * size, most)
