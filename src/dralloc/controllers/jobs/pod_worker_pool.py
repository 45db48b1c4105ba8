"""Creates and deletes the pods of one job with bounded concurrency, each pod once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.pod_disruption import disrupt
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.jobs.plan import INDEXED
from dralloc.controllers.jobs.pod_template import PodNames, pod_document
from dralloc.controllers.jobs.pod_tracker import DISMISSAL, PodTracker
from dralloc.kube.batch_v1 import Job
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.unstructured_object import UnstructuredObject, view
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import AlreadyExists, ApiError, NotFound

PODS: Final = resource_for(Pod)

DISMISSAL_MESSAGE: Final = "Job controller: deleting a pod that the job no longer needs"

# Concurrent requests of one job.
CONCURRENCY_MAX: Final = 32

Item = TypeVar("Item")
Place = tuple[str, int | None]


@dataclass(slots=True)
class PodWorkerPool:
    """Of one job, for one term of leadership."""

    calls: ApiCalls
    clock: Clock
    pods: Informer[Pod]
    tracker: PodTracker
    names: PodNames
    # Pods, with their indexes, whose creation failed or was not answered. They are created first; AlreadyExists then
    # shows which of them exist.
    unconfirmed: dict[str, int | None] = field(default_factory=dict)
    # When the job's status was last written, and the last event message by reason.
    written_at: datetime | None = None
    reported: dict[str, str] = field(default_factory=dict)
    # The PodGroup of new pods.
    group: str = ""
    _view: Job | None = None

    def view_of(self, job: UnstructuredObject) -> Job:
        """The typed view of the job, cached: it is needed for every change of a pod, and changes far less often."""
        if self._view is None or self._view.metadata.resource_version != job.metadata.resource_version:
            self._view = view(job, Job)
        return self._view

    async def create(self, job: UnstructuredObject, count: int) -> None:
        places = self._places(job, count)

        async def create(place: Place) -> None:
            await self._create_pod(job, *place)

        await _many(create, places)

    def _places(self, job: UnstructuredObject, count: int) -> list[Place]:
        """The names of the next pods, and their indexes if the job is Indexed."""
        spec = self.view_of(job).spec
        if spec.completion_mode != INDEXED:
            tried = [*self.unconfirmed.items()][:count]
            return tried + [(self.names.next(None), None) for _ in range(count - len(tried))]
        names = {index: name for name, index in self.unconfirmed.items()}
        vacant = self.tracker.slots.vacant(count, spec.completions or 0)
        return [(names.get(index) or self.names.next(index), index) for index in vacant]

    async def _create_pod(self, job: UnstructuredObject, name: str, index: int | None) -> None:
        self.tracker.expect(name, index, self.clock.now())
        self.unconfirmed[name] = index
        try:
            await self.calls.create(PODS, pod_document(job, name, index, self.group))
        except AlreadyExists:
            # The pod was created before and the answer was lost, or another owner has the name and the next pod gets another.
            pod = await self.calls.get(PODS, ObjectKey(job.metadata.namespace, name))
            owner = controller_of(pod.metadata)
            if owner is None or owner.uid != job.metadata.uid:
                self.tracker.forget(name)
        except (ApiError, TransportError):
            self.tracker.forget(name)
            raise
        self.unconfirmed.pop(name, None)
        if self.pods.get(name, job.metadata.namespace) is not None:
            # The informer showed the pod before the server answered.
            self.tracker.expected.pop(name, None)

    async def delete(self, job: UnstructuredObject, count: int) -> None:
        """Delete active pods, first those without a node, which have done no work."""
        active = [
            pod
            for pod in self.pods.by("controller", (job.metadata.namespace, job.metadata.uid))
            if not pod.is_finished and not pod.is_terminating
        ]
        # Pods that were chosen before come first: after a lost answer or with a stale informer, no other pods may be
        # deleted in their place.
        active.sort(key=lambda pod: (pod.metadata.uid not in self.tracker.dismissed, bool(pod.spec.node_name)))

        async def delete_pod(pod: Pod) -> None:
            self.tracker.dismissed.add(pod.metadata.uid)
            with suppress(NotFound):
                await disrupt(self.calls, pod, DISMISSAL, DISMISSAL_MESSAGE, self.clock.now())

        await _many(delete_pod, active[:count])


async def _many(do: Callable[[Item], Awaitable[None]], items: Sequence[Item]) -> None:
    """Apply to all items, in batches; after a failure, starts no further batch."""
    done = 0
    for size in batches(len(items), CONCURRENCY_MAX):
        outcomes = await asyncio.gather(*map(do, items[done : done + size]), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        done += size


def batches(count: int, most: int) -> Iterator[int]:
    """Batch sizes: 1, doubled up to `most`, so that a failing request is not repeated hundreds of times (slow start)."""
    size = 1
    while count > 0:
        now = min(size, count)
        yield now
        count -= now
        size = min(2 * size, most)
