"""From a decision to a bound pod: claims first, then the pod. What cannot be finished is undone.

Steps, each safe to die after: the claims' finalizers, their allocations with reservations, a look at whether somebody else gave
out the same devices in the same moment, the devices' own preparations, the binding.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, Protocol

from msgspec import Struct

from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey
from dralloc.devices.identity import ClaimId
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, Conflict, NotFound
from dralloc.scheduler.bind.claim_writer import ClaimLost, ClaimWriter, Collision
from dralloc.scheduler.decide.cycle import Place
from dralloc.scheduler.state.binding_conditions import (
    Failed,
    Ready,
    binding_deadline,
    readiness,
    results_with_conditions,
)
from dralloc.scheduler.state.cluster_events import ClusterEvent, claim_changed
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.watch_progress import WatchProgress

PODS: Final = resource_for(Pod)
SEEN_TIMEOUT_S: Final = 60.0
# How often devices that are made ready are looked at where nothing is heard of them.
DEVICES_LOOK_S: Final = 60.0


class Bound(Struct, frozen=True, gc=False):
    """The pod has its node."""


class Gone(Struct, frozen=True, gc=False):
    """There is no such pod any more, or it has a node already."""


class Undone(Struct, frozen=True, gc=False):
    """It did not work out. `is_collision`: somebody else was faster, so trying again soon makes sense.

    `listed` are the claims that list the pod because of this attempt, which is to be taken back. There are none once the binding
    was sent: whatever the answer, the pod may have its node, and a pod that has none goes on with what it has.
    """

    message: str
    is_collision: bool = False
    listed: frozenset[ClaimId] = frozenset()


BindingOutcome = Bound | Gone | Undone


class _DevicesFailed(Exception):
    """A device could not be made ready for the pod. `status` says how it ended, in one word."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class DeviceReporter(Protocol):
    """Is told of claims whose devices must be made ready."""

    def devices_pending(self, pod: Pod, claim: ResourceClaim) -> None:
        """Waiting begins."""

    def devices_settled(self, pod: Pod, claim: ResourceClaim, status: str, seconds: float) -> None:
        """Waiting has ended, with success, failure, timeout or error."""

    def claims_written(self, status: str, seconds: float) -> None:
        """The claims of a pod are written, or cannot be: Success or Error."""


class WriteSlots:
    """How many pods may be written at once. `when_free` is called when there is room for another one."""

    def __init__(self, most: int, when_free: Callable[[], None]) -> None:
        self._free = most
        self._when_free = when_free
        # Those that go on before anybody new begins.
        self._returning: deque[asyncio.Event] = deque()

    def __bool__(self) -> bool:
        return self._free > 0

    def take(self) -> None:
        self._free -= 1

    def give_back(self) -> None:
        if self._returning:
            self._returning.popleft().set()
            return
        self._free += 1
        self._when_free()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """For who has a slot and waits for others, maybe for minutes: somebody else may have the slot meanwhile."""
        self.give_back()
        try:
            yield
        except Exception:
            await self._take_again()
            raise
        # Who is cancelled does not go on, and waits for no slot.
        await self._take_again()

    async def _take_again(self) -> None:
        if self._free:
            self.take()
            return
        mine = asyncio.Event()
        self._returning.append(mine)
        await mine.wait()


class Binder:
    def __init__(
        self,
        calls: ApiCalls,
        cluster: ClusterState,
        *,
        slots: WriteSlots,
        writer: ClaimWriter,
        progress: WatchProgress,
        clock: Clock,
        reporter: DeviceReporter,
    ) -> None:
        self._calls = calls
        self._cluster = cluster
        self._slots = slots
        self._writer = writer
        self._progress = progress
        self._clock = clock
        self._reporter = reporter
        # Changes of claims whose devices are made ready.
        self._awaited: dict[ClusterEvent, asyncio.Event] = {}

    def notify(self, event: ClusterEvent) -> None:
        """Something has changed, maybe a claim whose devices are waited for."""
        if self._awaited and (awaited := self._awaited.pop(event, None)) is not None:
            awaited.set()

    async def bind(self, pod: Pod, place: Place) -> BindingOutcome:
        """Write the decision, which the cluster has assumed."""
        listed: set[ClaimId] = set()
        try:
            if place.allocations:
                await self._settle(pod, place, listed)
        except Collision as error:
            return Undone(str(error), is_collision=True, listed=frozenset(listed))
        except (ClaimLost, _DevicesFailed, ApiError, TransportError, TimeoutError) as error:
            return Undone(str(error) or type(error).__name__, listed=frozenset(listed))
        try:
            return await self._bind_pod(pod, place.node)
        except (ApiError, TransportError) as error:
            return Undone(str(error))

    async def undo(self, pod: Pod, listed: Iterable[ClaimId]) -> None:
        """Take the pod off these claims. What cannot be undone now is cleaned up when the pod is tried again, or goes."""
        for claim_id in listed:
            try:
                if await self._has_no_node(pod):
                    await self._writer.release(claim_id, pod.metadata.uid)
            except (ApiError, TransportError, Collision):
                continue

    async def deallocate(self, claim_id: ClaimId, pod: Pod) -> Undone | None:
        """Give back the devices of a claim that is of no use to the pod, and that nobody else uses. None: that is done."""
        try:
            is_done = await self._has_no_node(pod) and await self._writer.deallocate(claim_id, pod.metadata.uid)
        except (ApiError, TransportError, Collision) as error:
            return Undone(f"claim {claim_id} keeps the pod from its nodes and cannot be given other devices: {error}")
        return None if is_done else Undone(f"claim {claim_id} is in use or gone meanwhile")

    async def _has_no_node(self, pod: Pod) -> bool:
        """Whether nobody has bound the pod that we failed to bind: another scheduler may have been in charge before us."""
        try:
            found = await self._calls.get(PODS, ObjectKey(pod.metadata.namespace, pod.metadata.name))
        except NotFound:
            return True
        return found.metadata.uid != pod.metadata.uid or not found.spec.node_name

    # --- Claims -----------------------------------------------------------------------------------------------------

    async def _settle(self, pod: Pod, place: Place, listed: set[ClaimId]) -> None:
        """Return when the claims are stored as decided; `listed` gets those on which our own write has put the pod."""
        claims = await self._write_claims(pod.metadata.uid, place, listed)
        for claim_id, claim in zip(place.allocations, claims, strict=True):
            await self._check_collision(claim_id, claim)
            await self._prepare_devices(pod, claim_id, claim)

    async def _write_claims(self, uid: str, place: Place, listed: set[ClaimId]) -> list[ResourceClaim]:
        loop, status = asyncio.get_running_loop(), "Error"
        started_s = loop.time()
        try:
            claims = await _all_of(
                [self._writer.settle(claim_id, wanted, uid, listed) for claim_id, wanted in place.allocations.items()]
            )
            status = "Success"
        finally:
            self._reporter.claims_written(status, loop.time() - started_s)
        return claims

    async def _check_collision(self, claim_id: ClaimId, claim: ResourceClaim) -> None:
        """Of two claims that were given the same device, the one that was written first keeps it.

        A server that guards its devices lets none of this happen; others do not care. Once we have seen our own write, we
        have seen everything that was written before it.
        """
        if self._cluster.is_proven(claim_id):
            return
        revision = int(claim.metadata.resource_version)
        if not self._progress.has_reached(revision):
            async with asyncio.timeout(SEEN_TIMEOUT_S):
                await self._progress.reach(revision)
        if (holder := self._cluster.earlier_holder(claim_id)) is not None:
            raise Collision(f"claim {holder} was given devices of claim {claim_id} before")
        self._cluster.prove(claim_id)

    async def _prepare_devices(self, pod: Pod, claim_id: ClaimId, claim: ResourceClaim) -> None:
        """Devices with binding conditions are made ready by their driver, which may take minutes."""
        if not any(results_with_conditions(claim)):
            return
        self._reporter.devices_pending(pod, claim)
        started = self._clock.now()
        status = "error"
        try:
            async with self._slots.lent():
                await self._wait_for_devices(claim_id)
            status = "success"
        except _DevicesFailed as error:
            status = error.status
            raise
        finally:
            self._reporter.devices_settled(pod, claim, status, (self._clock.now() - started).total_seconds())

    async def _wait_for_devices(self, claim_id: ClaimId) -> None:
        while True:
            claim = self._cluster.stored_claim(claim_id)
            if claim is None or claim.status.allocation is None:
                raise ClaimLost(f"claim {claim_id} lost its devices while they were made ready")
            match readiness(claim):
                case Ready():
                    return
                case Failed(message):
                    raise _DevicesFailed(f"claim {claim_id}: {message}", "failure")
            deadline = binding_deadline(claim)
            if deadline is not None and self._clock.now() >= deadline:
                raise _DevicesFailed(f"claim {claim_id}: its devices were not ready in time", "timeout")
            await self._next_change(claim_id, deadline)

    async def _next_change(self, claim_id: ClaimId, deadline: datetime | None) -> None:
        """Return when the claim has changed, or its devices are late; or in any case after a while."""
        # Pods that share a claim wait for the same.
        awaited = self._awaited.setdefault(claim_changed(claim_id), asyncio.Event())
        left_s = (deadline - self._clock.now()).total_seconds() if deadline is not None else DEVICES_LOOK_S
        try:
            async with asyncio.timeout(min(left_s, DEVICES_LOOK_S)):
                await awaited.wait()
        except TimeoutError:
            return

    # --- The pod ----------------------------------------------------------------------------------------------------

    async def _bind_pod(self, pod: Pod, node: str) -> BindingOutcome:
        key = ObjectKey(pod.metadata.namespace, pod.metadata.name)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": key.namespace, "name": key.name, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._calls.post(PODS, key, "binding", binding)
        except (Conflict, NotFound, TransportError) as error:
            return await self._what_became_of(pod, key, node, error)
        return Bound()

    async def _what_became_of(self, pod: Pod, key: ObjectKey, node: str, error: Exception) -> BindingOutcome:
        """An answer may get lost, and others may bind or delete the pod: the pod itself knows."""
        try:
            found = await self._calls.get(PODS, key)
        except NotFound:
            return Gone()
        if found.metadata.uid != pod.metadata.uid or found.is_terminating:
            return Gone()
        if found.spec.node_name == node:
            return Bound()
        return Gone() if found.spec.node_name else Undone(str(error))


async def _all_of(settling: list[Coroutine[Any, Any, ResourceClaim]]) -> list[ResourceClaim]:
    """The settled claims, or the first failure, which is raised only when all have ended.

    What is written after we gave up would never be undone.
    """
    if len(settling) == 1:
        return [await settling[0]]
    ended = await asyncio.gather(*settling, return_exceptions=True)
    failures = (outcome for outcome in ended if isinstance(outcome, BaseException))
    for failure in failures:
        raise failure
    return [outcome for outcome in ended if isinstance(outcome, ResourceClaim)]
