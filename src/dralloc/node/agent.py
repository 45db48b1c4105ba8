"""One node: everything that a kubelet does for devices, put together.

The agent owns a directory laid out as a kubelet's: drivers put their registration sockets into `plugins_registry` and their own into
`plugins`; the state of the node lies beside them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.event_recorder import EventRecorder
from dralloc.client.informer import Informer, history_change
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.core_v1 import STREAMING_CERTIFICATE, Event
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.node.checkpoint import lock_directory
from dralloc.node.claim_cache import ClaimCache
from dralloc.node.claims import ClaimsFailed, NodeClaims
from dralloc.node.driver_calls import GrpcDriverCalls
from dralloc.node.drivers import Connect, DriverInstance, Drivers, open_channel
from dralloc.node.health import HealthWatch
from dralloc.node.heartbeat import NodeHeartbeat
from dralloc.node.kubelet.cdi import CDI_DIRECTORIES
from dralloc.node.kubelet.cdi_registry import CdiRegistry
from dralloc.node.kubelet.checkpoint_file import BadCheckpoint
from dralloc.node.kubelet.plugin_sockets import PLUGINS, REGISTRY
from dralloc.node.metrics import NodeMetrics
from dralloc.node.node_object import NodeShape
from dralloc.node.pod_sync import PodSync, PodSyncContext
from dralloc.node.pod_view import NODE_PODS, NodePod
from dralloc.node.process_runtime import ProcessRuntime
from dralloc.node.registration import PluginWatcher
from dralloc.node.simulated_runtime import SimulatedRuntime
from dralloc.node.timings import DEFAULT_TIMINGS, Timings, retry_until_done, try_within
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import Conflict, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.metrics import exposition

_logger = logging.getLogger(__name__)

CHECKPOINT: Final = "dra_manager_state"
HEALTH: Final = "dra_health_state"
FIELD_MANAGER: Final = "dralloc-node"

# Pods that are synced concurrently. Each may wait for a driver; none may wait for the driver of another pod.
WORKERS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    shape: NodeShape
    directory: Path
    runs_processes: bool = True
    keeps_containers: bool = False
    cdi_directories: tuple[Path, ...] = CDI_DIRECTORIES
    # The certificates, in PEM, that sign those of API servers. Without them, no logs are served.
    authority: str | None = None
    # Of the log server; 0 is a free one.
    port: int = 0
    timings: Timings = DEFAULT_TIMINGS
    gates: FeatureGates = field(default_factory=FeatureGates.defaults)
    workers: int = WORKERS


class Agent:
    """One node. The constructor reads the state of an earlier agent; it raises BadCheckpoint or DirectoryInUse."""

    def __init__(
        self, transport: Transport, settings: AgentSettings, clock: Clock, connect: Connect = open_channel
    ) -> None:
        directory, timings = settings.directory, settings.timings
        for name in (REGISTRY, PLUGINS):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self._lock = lock_directory(directory)
        self._settings = settings
        self._calls = calls = ApiCalls(transport, field_manager=FIELD_MANAGER)
        try:
            self._book = ClaimCache(directory / CHECKPOINT)
        except BadCheckpoint:
            os.close(self._lock)
            raise
        self.metrics = NodeMetrics(self._book.records)
        self._slices = SliceCleanup(calls, settings.shape.name, timings)
        self.drivers = Drivers(self._slices.connection_changed)
        self._plugins = PluginWatcher(directory / REGISTRY, self.drivers, timings, self._driver_registered, connect)
        self.claims = NodeClaims(
            self._book,
            GrpcDriverCalls(self.drivers, self.metrics, timings.call_s),
            self.metrics,
            fetch=self._fetch_claim,
            is_registered=lambda driver: self.drivers.pick(driver) is not None,
            stage_of_pod=lambda pod_uid: self._pods.stage_of(pod_uid),
            may_skip="DRAOptionalNodeOperations" in settings.gates,
            for_workloads="DRAReservedForWorkloads" in settings.gates,
            for_groups="DRAWorkloadResourceClaims" in settings.gates,
        )
        self._events = EventRecorder(calls, resource_for(Event), component=FIELD_MANAGER, clock=clock)
        self._health = HealthWatch(timings, self.drivers.pick, self._health_changed, directory / HEALTH)
        self._runtime = self._make_runtime(clock)
        self._pods = PodSync(
            PodSyncContext(
                calls_of_node=lambda _: calls,
                claims=self.claims,
                runtime=self._runtime,
                events=self._events,
                clock=clock,
                timings=timings,
                health_of=self._health.get,
                shows_health=self._uses_health,
                host_ip=settings.shape.host_ip,
                start_errors=self.metrics.start_errors,
            )
        )
        self._driver_registration = asyncio.Event()
        self._clock = clock
        self._heartbeat = NodeHeartbeat(calls, settings.shape, clock, timings)

    async def metrics_text(self) -> str:
        return exposition(self.metrics.all())

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Run the node until cancelled. Raises HistoryChanged in a group: the containers go on then, for the agent that starts again."""
        name = self._settings.shape.name
        timings = self._settings.timings
        informer: Informer[NodePod] = Informer()
        is_registered = starts_again = False
        try:
            async with self._serving_logs(informer) as shape, asyncio.TaskGroup() as tasks:
                self._heartbeat = NodeHeartbeat(self._calls, shape, self._clock, timings)
                tasks.create_task(self._events.run())
                failure = f"cannot register node {name}"
                await retry_until_done(failure, self._heartbeat.register, timings.connect_backoff)
                is_registered = True
                self._slices.delete_all()
                self._health.load()
                tasks.create_task(self._heartbeat.beat())
                tasks.create_task(self._heartbeat.watch())
                tasks.create_task(self._health.run())
                tasks.create_task(self._plugins.run())
                reflector = Reflector(self._calls, NODE_PODS, informer, field_selector=f"spec.nodeName={name}")
                tasks.create_task(reflector.run())
                await informer.synced.wait()
                self._end_unknown(informer)
                informer.subscribe(self._pods.pod_changed)
                tasks.create_task(self._pods.run(self._settings.workers))
                tasks.create_task(self._reconcile())
                on_ready()
        except BaseExceptionGroup as errors:
            starts_again = history_change(errors) is not None
            raise
        finally:
            if is_registered and not starts_again:
                await try_within(f"cannot mark node {name} as not ready", self._heartbeat.leave(), timings.leave_s)
            await self._close(starts_again=starts_again)

    @asynccontextmanager
    async def _serving_logs(self, informer: Informer[NodePod]) -> AsyncIterator[NodeShape]:
        """Serve the logs of containers inside the block; yields the node with the port of the server."""
        settings, shape = self._settings, self._settings.shape
        if not isinstance(self._runtime, ProcessRuntime) or settings.authority is None:
            yield shape
            return
        # Slow to import, and not needed for simulated pods.
        from dralloc.node.log_server import LogServer, make_identity

        identity = make_identity(settings.directory / "pki", shape.name)
        server = LogServer(self._runtime, lambda namespace, name: informer.get(name, namespace), self._clock)
        tls = identity.context(settings.authority)
        async with server.listen(shape.host_ip or "127.0.0.1", settings.port, tls) as port:
            annotations = {**shape.annotations, STREAMING_CERTIFICATE: identity.fingerprint}
            yield replace(shape, annotations=annotations, log_port=port)

    async def _reconcile(self) -> None:
        """Unprepare the claims of deleted pods: periodically, and when a driver registers that may be needed for it."""
        while True:
            await asyncio.gather(*map(self._unprepare_deleted, self._book.pods() - self._pods.pods()))
            self._driver_registration.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.timings.reconcile_s):
                    await self._driver_registration.wait()

    async def _unprepare_deleted(self, pod_uid: str) -> None:
        try:
            await self.claims.unprepare(pod_uid)
        except ClaimsFailed as failed:
            _logger.warning("cannot unprepare the claims of deleted pod %s: %s", pod_uid, failed)

    async def _fetch_claim(self, key: ObjectKey) -> ResourceClaim:
        return await self._calls.get(resource_for(ResourceClaim), key)

    @property
    def _uses_health(self) -> bool:
        return "ResourceHealthStatus" in self._settings.gates

    def _driver_registered(self, instance: DriverInstance) -> None:
        if instance.health is not None and self._uses_health:
            self._health.follow(instance.driver)
        self._driver_registration.set()
        self._pods.requeue(lambda pod: bool(pod.spec.resource_claims))

    def _health_changed(self, driver: str) -> None:
        def is_concerned(pod: NodePod) -> bool:
            held = self.claims.of_pod(pod.metadata.uid)
            return any(driver in record.drivers for record in held.values())

        self._pods.requeue(is_concerned)

    def _make_runtime(self, clock: Clock) -> SimulatedRuntime | ProcessRuntime:
        if not self._settings.runs_processes:
            return SimulatedRuntime(clock)
        cdi = CdiRegistry(self._settings.cdi_directories)
        host_ip = self._settings.shape.host_ip
        return ProcessRuntime(self._settings.directory, cdi, clock, host_ip=host_ip)

    def _end_unknown(self, informer: Informer[NodePod]) -> None:
        if isinstance(self._runtime, ProcessRuntime):
            self._runtime.end_unknown(informer.all())

    async def _close(self, *, starts_again: bool) -> None:
        if isinstance(self._runtime, ProcessRuntime):
            await self._runtime.close(keep=self._settings.keeps_containers or starts_again)
        # Before the slices: a driver that disconnects starts a timer there.
        await self.drivers.close()
        await self._slices.close()
        self._book.close()
        os.close(self._lock)


# --- Slice cleanup --------------------------------------------------------------------------------------------------
# Deletes the slices of disconnected drivers, so that no pods are scheduled to devices without a driver.
#
# The slices of this node are deleted after the driver was disconnected for half a minute; a restart takes less.
# Slices that belong to no node are kept.


class SliceCleanup:
    """Deletes the slices of one node: all of them when the agent starts, and those of drivers that stay disconnected."""

    def __init__(self, calls: ApiCalls, node: str, timings: Timings) -> None:
        self._calls = calls
        self._node = node
        self._timings = timings
        self._connected: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def delete_all(self) -> None:
        """Delete all slices of the node that are left from an earlier run: no driver is registered yet."""
        self._spawn(self._delete(""))

    def connection_changed(self, driver: str, connected: bool) -> None:
        """Start the timer of a driver that disconnects; only a connection stops it."""
        (self._connected.add if connected else self._connected.discard)(driver)
        timer = self._timers.get(driver)
        if connected and timer is not None:
            timer.cancel()
            del self._timers[driver]
        elif not connected and timer is None:
            loop = asyncio.get_running_loop()
            self._timers[driver] = loop.call_later(self._timings.slice_cleanup_delay_s, self._timed_out, driver)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _timed_out(self, driver: str) -> None:
        del self._timers[driver]
        _logger.warning("driver %s stays disconnected: deleting its slices of node %s", driver, self._node)
        self._spawn(self._delete(driver))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete(self, driver: str) -> None:
        what = f"cannot delete the slices of node {self._node}"
        await retry_until_done(
            what, lambda: self._delete_once(driver), self._timings.slice_cleanup_backoff, despite_refusals=True
        )

    async def _delete_once(self, driver: str) -> None:
        selector = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        slices, _ = await self._calls.list_all(resource_for(ResourceSlice), field_selector=selector)
        for item in slices:
            if item.spec.driver in self._connected:
                # It has connected since, and keeps its slices right itself.
                continue
            try:
                # Only the listed version: a driver that is back may have written the slice again.
                await self._calls.delete_unchanged(resource_for(ResourceSlice), item)
            except (NotFound, Conflict):
                continue
