"""The heartbeat of a node: registers it, renews its lease and status, and marks it not ready when its agent ends."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from dralloc.client.api_calls import ApiCalls, PatchType
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.coordination_v1 import NODE_LEASES, Lease
from dralloc.kube.core_v1 import Node, Taint
from dralloc.kube.node_taints import NO_SCHEDULE, NOT_READY
from dralloc.node.node_object import NodeShape, node_document, node_status
from dralloc.node.timings import Timings
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound

_logger = logging.getLogger(__name__)

# Schedulers read the taint, users the condition.
_TAINT: Final = Taint(key=NOT_READY, effect=NO_SCHEDULE)


class NodeHeartbeat:
    """Registers a node and keeps it alive: renews its lease often, and its status from time to time."""

    def __init__(
        self,
        calls: ApiCalls,
        shape: NodeShape,
        clock: Clock,
        timings: Timings,
        *,
        since: datetime | None = None,
        registrar: ApiCalls | None = None,
    ) -> None:
        self._calls = calls
        # Creates the node and sets its labels and taints; nodes themselves may not set all of them.
        self._registrar = registrar or calls
        self._shape = shape
        self._clock = clock
        self._timings = timings
        self._since = since or clock.now()
        self._is_ready = True
        # Set when the server shows another state than ours.
        self._is_contradicted = asyncio.Event()
        self._registered_at = 0

    async def register(self) -> str:
        """Create the node, or update it; returns its UID."""
        nodes, key = resource_for(Node), ObjectKey("", self._shape.name)
        document = node_document(self._shape)
        try:
            node = await self._registrar.create(nodes, {**document, "status": self._status()})
        except AlreadyExists:
            metadata = {name: value for name, value in document["metadata"].items() if name != "name"}
            await self._registrar.patch(nodes, key, {"metadata": metadata})
            node = await self._show()
        # Some servers drop the status of a create request; those get a second write.
        node = node if node.status.conditions else await self._show()
        self._registered_at = int(node.metadata.resource_version)
        return node.metadata.uid

    async def leave(self) -> None:
        """Mark the node not ready, so that no pods are scheduled to it."""
        self._since, self._is_ready = self._clock.now(), False
        await self._show()

    async def keep_pods_away(self, node: Node) -> None:
        """Add the taint only, the urgent half of `leave`; a no-op if the node has changed since it was read."""
        self._is_ready = False
        with suppress(Conflict):
            await self._taint(node)

    async def watch(self) -> None:
        """Follow the node until cancelled. Controllers mark a node that they believe to be gone; a node that is not contradicts.

        Raises HistoryChanged, also if a backup that may lack the node was restored since the registration.
        """
        nodes: Informer[Node] = Informer()
        nodes.subscribe(self.node_changed)
        selector, since = f"metadata.name={self._shape.name}", self._registered_at
        await Reflector(self._calls, resource_for(Node), nodes, field_selector=selector, since=since).run()

    def node_changed(self, _: Node | None, after: Node | None) -> None:
        """Handle an informer event. A controller marks a node that was silent; now the node contradicts."""
        if after is not None and self._is_ready and is_contradicted(after):
            self._since = self._clock.now()
            self._is_contradicted.set()

    async def show_ready(self) -> None:
        """Write the status again. A node that was deleted stays so."""
        with suppress(NotFound):
            await self._show()

    async def _show(self) -> Node:
        """Write the status and the matching taint; taints of other components are kept."""
        while True:
            try:
                return await self._taint(await self._send_status())
            except Conflict:
                # The node, and perhaps its taints, changed concurrently.
                continue

    async def _taint(self, node: Node) -> Node:
        taints = [taint for taint in node.spec.taints if (taint.key, taint.effect) != (NOT_READY, NO_SCHEDULE)]
        if not self._is_ready:
            taints.append(_TAINT)
        if len(taints) == len(node.spec.taints):
            return node
        change = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints or None},
        }
        try:
            return await self._registrar.patch(resource_for(Node), ObjectKey("", self._shape.name), change)
        except Forbidden:
            # A cluster that forbids nodes to change taints sets this one itself, from the condition.
            return node

    async def beat(self) -> None:
        """Show that the node is alive until cancelled. What the server did not take is sent again with the next beat."""
        loop = asyncio.get_running_loop()
        status_at = loop.time() + self._timings.node_status_s
        while True:
            is_shown = not self._is_contradicted.is_set() or await self._contradict()
            await self.beat_once(with_status=loop.time() >= status_at)
            if loop.time() >= status_at:
                status_at = loop.time() + self._timings.node_status_s
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timings.heartbeat_s):
                    await self._is_contradicted.wait()
            if not is_shown:
                self._is_contradicted.set()

    async def _contradict(self) -> bool:
        """Returns False if the server did not take it."""
        self._is_contradicted.clear()
        try:
            await self.show_ready()
        except (ApiError, TransportError) as error:
            _logger.warning("cannot write the status of node %s: %s", self._shape.name, error)
            return False
        return True

    async def beat_once(self, *, with_status: bool = False) -> None:
        """Renew the lease once, and the status on request. Failures are logged; the next beat tries again."""
        try:
            await self._renew_lease()
            if with_status:
                await self._send_status()
        except (ApiError, TransportError) as error:
            _logger.warning("cannot renew the lease or status of node %s: %s", self._shape.name, error)

    async def _send_status(self) -> Node:
        return await self._calls.patch(
            resource_for(Node),
            ObjectKey("", self._shape.name),
            {"status": self._status()},
            type=PatchType.STRATEGIC,
            subresource="status",
        )

    def _status(self) -> dict[str, Any]:
        return node_status(self._shape, self._clock.now(), self._since, is_ready=self._is_ready)

    async def _renew_lease(self) -> None:
        await renew_lease(self._calls, self._shape.name, self._clock.now(), self._timings)


async def renew_lease(calls: ApiCalls, name: str, now: datetime, timings: Timings) -> None:
    """Renew the lease with which a node, or nodes that share it, show that they are alive; create it if it is missing."""
    moment = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"holderIdentity": name, "leaseDurationSeconds": timings.lease_s, "renewTime": moment}
    leases, key = resource_for(Lease), ObjectKey(NODE_LEASES, name)
    try:
        await calls.patch(leases, key, {"spec": spec})
    except NotFound:
        await calls.create(leases, {"metadata": {"name": name, "namespace": NODE_LEASES}, "spec": spec})


def is_contradicted(node: Node) -> bool:
    """True if the server shows a node that is ready as not ready."""
    return any(each.type == "Ready" and each.status != "True" for each in node.status.conditions)
