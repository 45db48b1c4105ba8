"""A running driver: the vendor's part, connected with publisher, gRPC services, checkpoint and health."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import history_change
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import Transport, TransportError
from dralloc.client.typed_resource import ObjectKey, TypedResource
from dralloc.driver.checkpoint import Checkpoint
from dralloc.driver.claims import AllocatedClaim, ClaimReference, PreparedDevice
from dralloc.driver.device_status import StatusWriter
from dralloc.driver.devices import Pool
from dralloc.driver.driver import Driver, call
from dralloc.driver.health import DeviceHealth, HealthBoard, poll_health
from dralloc.driver.instances import Instances
from dralloc.driver.metrics import DriverMetrics
from dralloc.driver.preparer import ClaimCdiFiles, Preparer
from dralloc.driver.publisher import SlicePublisher
from dralloc.driver.services import Listen, Registration, listening, serving
from dralloc.driver.settings import BadDriverSettings, Settings, boot_id
from dralloc.driver.slices import InvalidPools
from dralloc.driver.vendor_errors import InventoryFailed, MonitorFailed, told
from dralloc.kube.resource_v1 import Device, ResourceClaim
from dralloc.kube.validation.formats import validate_driver_name
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.primitives.field_errors import FieldPath
from dralloc.system_clock import SystemClock

CLAIMS_DIR: Final = "claims"

_logger = logging.getLogger(__name__)


class Plugin:
    """A driver on a node. `Driver.monitor` gets it, to republish devices and report changes."""

    def __init__(
        self,
        driver: Driver,
        settings: Settings,
        transport: Transport,
        *,
        clock: Clock | None = None,
        listen: Listen = listening,
    ) -> None:
        if faults := tuple(validate_driver_name(driver.name, FieldPath.of("name"))):
            raise BadDriverSettings("; ".join(map(str, faults)))
        calls = ApiCalls(transport, field_manager=driver.name)
        data_dir = settings.data_dir(driver.name)
        self._driver = driver
        self._settings = settings
        self._listen = listen
        self.metrics = DriverMetrics(driver.name)
        self._instances = Instances(data_dir)
        self._checkpoint = Checkpoint(data_dir / CLAIMS_DIR)
        self._board = HealthBoard() if driver.reports_health else None
        self._health_nudge = asyncio.Event()
        # Pool and name of the devices that the driver has listed last.
        self._published: frozenset[tuple[str, str]] = frozenset()
        # All background work; it ends only with the driver, by an internal error, or by HistoryChanged.
        self.work: asyncio.Task[None] | None = None
        self._status = StatusWriter(
            calls, driver.name, self._checkpoint, clock=clock or SystemClock(), on_problem=self._report_problem
        )
        self._publisher = SlicePublisher(
            calls,
            driver.name,
            node_name=settings.node_name,
            metrics=self.metrics,
            on_problem=self._report_problem,
            may_write=self._instances.is_newest,
            repair_delay_s=settings.repair_delay_s,
        )
        self._preparer = Preparer(
            driver,
            calls=calls,
            checkpoint=self._checkpoint,
            cdi=ClaimCdiFiles(settings.cdi_dir, driver.name),
            lock=self._instances.serialized,
            boot_id=boot_id(),
            metrics=self.metrics,
            published=lambda: self._published,
            on_prepared=self._status.add,
        )
        self._orphaned = OrphanedClaims(
            calls, self._checkpoint, self._preparer, after_s=settings.vanished_after_s, on_problem=self._report_problem
        )

    # --- For drivers ----------------------------------------------------------------------------------------------

    async def republish(self) -> None:
        """Get the devices of the driver again, and publish changes. If that fails, it is reported, and what is published stays."""
        try:
            self._publish(await self._devices())
        except (InvalidPools, InventoryFailed) as error:
            self._report_problem(error)

    async def published(self) -> None:
        """Wait until the devices are published."""
        await self._publisher.written()

    def check_health(self) -> None:
        """Poll the health of the devices now instead of at the next interval."""
        self._health_nudge.set()

    async def prepared_claims(self) -> tuple[AllocatedClaim, ...]:
        """The prepared claims of this node, with the state of the driver."""
        records = await asyncio.to_thread(self._checkpoint.all)
        return tuple(record.allocated(self._driver.name) for record in records if record.is_prepared)

    async def report(self, claim: AllocatedClaim, devices: Sequence[PreparedDevice]) -> None:
        """Update status and state of devices of a prepared claim."""
        async with self._instances.serialized():
            record = await asyncio.to_thread(self._checkpoint.read, claim.uid)
            if record is None:
                return
            updates = {device.key: device for device in devices}
            merged = tuple(_updated(device, updates.get(device.key)) for device in record.devices)
            await asyncio.to_thread(self._checkpoint.write, replace(record, devices=merged))
        self._status.add(claim.uid)

    # --- Running --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Registration]:
        """Serve, publish and report inside the block."""
        sockets = self._settings.sockets(self._driver.name)
        self._instances.enter((str(sockets.service), str(sockets.registration)))
        for problem in await asyncio.to_thread(self._checkpoint.damaged):
            self._report_problem(problem)
        try:
            # Mistakes of its author end the driver at the start.
            self._publish(await self._devices())
            async with self._serving_and_working() as registration:
                yield registration
        finally:
            self._instances.leave()

    @asynccontextmanager
    async def _serving_and_working(self) -> AsyncIterator[Registration]:
        async with serving(
            self._settings.sockets(self._driver.name),
            listen=self._listen,
            driver=self._driver.name,
            preparer=self._preparer,
            metrics=self.metrics,
            health=self._board,
        ) as registration:
            self.metrics.read_from(
                prepared=lambda: len(self._checkpoint.all()),
                registered=lambda: registration.is_registered,
                health=self._board.counts if self._board is not None else dict,
            )
            self.work = asyncio.create_task(self._work())
            try:
                yield registration
            finally:
                self.work.cancel()
                await asyncio.wait([self.work])
                await self._preparer.settle()

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._publisher.run())
                group.create_task(self._status.run())
                group.create_task(self._orphaned.run())
                group.create_task(self._monitor())
                if self._board is not None:
                    group.create_task(
                        poll_health(
                            self._ask_health,
                            self._board,
                            interval_s=self._settings.health_interval_s,
                            nudge=self._health_nudge,
                            clock_s=time.time,
                        )
                    )
        except BaseExceptionGroup as errors:
            raise history_change(errors) or errors from None

    async def _monitor(self) -> None:
        while True:
            try:
                return await self._driver.monitor(self)
            except Exception as error:  # noqa: BLE001 - one failure to read the hardware must not end the monitor for good
                self._report_problem(MonitorFailed(f"monitor() failed: {told(error)}"))
            await asyncio.sleep(self._settings.monitor_restart_s)

    async def _ask_health(self) -> Iterable[DeviceHealth] | None:
        try:
            devices = await call(self._driver.health)
        except Exception as error:  # noqa: BLE001 - old reports expire by themselves
            self._report_problem(error)
            return None
        return [replace(device, pool=device.pool or self._settings.node_name) for device in devices or ()]

    async def _devices(self) -> Iterable[Pool | Device]:
        """Raises InventoryFailed."""
        try:
            found = await call(self._driver.devices)
            # A generator fails only here.
            return list(found) if isinstance(found, Iterable) else found
        except Exception as error:
            raise InventoryFailed(f"devices() failed: {told(error)}") from error

    def _publish(self, inventory: Iterable[Pool | Device]) -> None:
        pools = self._pools(inventory)
        self._publisher.publish(pools)
        self._published = frozenset((pool.name, device.name) for pool in pools for device in pool.devices)

    def _pools(self, inventory: Iterable[Pool | Device]) -> list[Pool]:
        """The pools; devices without a pool form one that is named after the node. Drivers need not have types."""
        if not isinstance(inventory, Iterable):
            raise InvalidPools([f"devices() has to return a list of device(...) or Pool(...), not {inventory!r}"])
        pools: list[Pool] = []
        loose: list[Device] = []
        for item in inventory:
            if isinstance(item, Pool):
                pools.append(item)
            elif isinstance(item, Device):
                loose.append(item)
            else:
                raise InvalidPools([f"devices() has to return a list of device(...) or Pool(...), not of {item!r}"])
        if loose or not pools:
            pools.append(Pool(name=self._settings.node_name, devices=tuple(loose)))
        return pools

    def _report_problem(self, problem: Exception) -> None:
        self.metrics.problem(problem)
        _logger.warning("%s: %s", type(problem).__name__, problem)


def _updated(device: PreparedDevice, update: PreparedDevice | None) -> PreparedDevice:
    """Edits cannot change after the preparation; status and state can."""
    if update is None:
        return device
    return PreparedDevice(
        key=device.key,
        requests=device.requests,
        edits=device.edits,
        cdi_device_ids=device.cdi_device_ids,
        conditions=update.conditions,
        network=update.network,
        data=update.data,
        state=update.state,
    )


# --- Orphaned claims ------------------------------------------------------------------------------------------------
# Releases prepared claims that no longer exist, even if the kubelet does not unprepare them.
#
# A kubelet that lost its checkpoint does not unprepare the claims in it, so their devices would stay prepared
# forever. The delay lets containers of a deleted claim end.


CLAIMS: Final[TypedResource[ResourceClaim]] = resource_for(ResourceClaim)


def gone_since(
    gone: Iterable[ClaimReference], before: Mapping[ClaimReference, float], now_s: float
) -> dict[ClaimReference, float]:
    """Since when each of these claims has been missing continuously."""
    return {reference: before.get(reference, now_s) for reference in gone}


class OrphanedClaims:
    """Periodically compares the checkpoint with the API server."""

    def __init__(
        self,
        calls: ApiCalls,
        checkpoint: Checkpoint,
        preparer: Preparer,
        *,
        after_s: float,
        on_problem: Callable[[Exception], None],
    ) -> None:
        self._calls = calls
        self._checkpoint = checkpoint
        self._preparer = preparer
        self._after_s = after_s
        self._on_problem = on_problem

    async def run(self) -> None:
        """Release orphaned claims until cancelled."""
        missing: dict[ClaimReference, float] = {}
        while True:
            try:
                missing = await self.check(missing)
            except (ApiError, TransportError, OSError) as error:
                self._on_problem(error)
            await asyncio.sleep(self._after_s / 4)

    async def check(self, missing: Mapping[ClaimReference, float]) -> dict[ClaimReference, float]:
        """Check once and release overdue claims; returns since when each claim has been missing."""
        records = await asyncio.to_thread(self._checkpoint.all)
        gone = [record.reference for record in records if await self._is_gone(record.reference)]
        now_s = asyncio.get_running_loop().time()
        missing = gone_since(gone, missing, now_s)
        if overdue := [reference for reference, since in missing.items() if now_s - since >= self._after_s]:
            await self._preparer.unprepare(overdue)
        return missing

    async def _is_gone(self, reference: ClaimReference) -> bool:
        try:
            claim = await self._calls.get(CLAIMS, ObjectKey(reference.namespace, reference.name))
        except NotFound:
            return True
        return claim.metadata.uid != reference.uid
