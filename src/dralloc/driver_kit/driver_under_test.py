"""The driver under test: its connection, its claims, its slices, and how it is restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from msgspec.structs import replace

from dralloc.client.async_client import AsyncClient
from dralloc.driver_kit.answer_rules import services_in
from dralloc.driver_kit.caller import Caller, ClaimName, PluginInfo, Responsiveness, RpcFailed, calling
from dralloc.driver_kit.claim_maker import CannotAllocate, ClaimMaker, exactly
from dralloc.driver_kit.findings import NotTestable, NotTested, Skip
from dralloc.driver_kit.slice_rules import SliceHistory
from dralloc.kube.resource_v1 import (
    DeviceClaimConfiguration,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.node.kubelet.cdi_registry import CdiRegistry
from dralloc.node.kubelet.plugin_sockets import CALL_TIMEOUT_S, find_sockets
from dralloc.rpc.plugin_services import DRA_SERVICES, DRA_V1, HEALTH_SERVICES, PluginService

# --- Driver traces --------------------------------------------------------------------------------------------------
# What a driver leaves on disk: CDI files, and a checkpoint whose format the kit does not know.
#
# A checkpoint is searched for the UID of a claim, in names and contents of files: every driver must store it to
# find the claim again.


FILES_MAX: Final = 10_000
FILE_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverTraces:
    """The directories of CDI files, and files or directories with the checkpoint; empty if they are not known."""

    cdi_dirs: tuple[Path, ...] = ()
    checkpoint: tuple[Path, ...] = ()

    def cdi_names(self) -> frozenset[str]:
        """The names of the CDI devices that a container runtime finds."""
        return CdiRegistry(self.cdi_dirs).names() if self.cdi_dirs else frozenset()

    def records_of(self, text: str) -> tuple[Path, ...]:
        """The files of the checkpoint that have the text in their name or content."""
        return tuple(path for path in self._files() if text in path.name or _contains(path, text.encode()))

    def _files(self) -> Iterator[Path]:
        count = 0
        for place in self.checkpoint:
            for path in [place] if place.is_file() else sorted(place.rglob("*")):
                if path.is_file() and count < FILES_MAX:
                    count += 1
                    yield path


def _contains(path: Path, text: bytes) -> bool:
    try:
        return path.stat().st_size <= FILE_BYTES_MAX and text in path.read_bytes()
    except FileNotFoundError:
        # Removed in the meantime.
        return False


LOOK_AGAIN_S: Final = 0.05


class DriverNotFound(Exception):
    """The driver did not register in time."""


class Restarter(Protocol):
    """Kills and restarts the driver."""

    def ended(self) -> str:
        """How the driver ended by itself; empty while it runs, or if that is not known."""
        ...

    async def restart(self) -> None: ...


class ProcessFaults(Protocol):
    """Faults of the driver's process, each inside a block."""

    def frozen(self) -> AbstractContextManager[None]:
        """The process does not run, with its connections open."""
        ...

    def full_disk(self) -> AbstractContextManager[None]:
        """The process cannot write files."""
        ...


class ApiFaults(Protocol):
    """Faults of the API server as the driver sees it, each inside a block."""

    def away(self) -> AbstractAsyncContextManager[None]: ...

    def slow(self, delay_s: float) -> AbstractAsyncContextManager[None]: ...


class DeviceFaults(Protocol):
    """Takes a device away and brings it back."""

    async def lose(self, pool: str, device: str) -> None: ...

    async def restore(self, pool: str, device: str) -> bool:
        """False if the device stays lost."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the driver."""

    # From the start of the driver until it registers, and until it publishes devices.
    start_s: float = 60.0
    # Until a deleted slice is republished.
    repair_s: float = 90.0
    health_s: float = 35.0
    # Until a claim can be prepared again after a fault.
    recovery_s: float = 60.0
    # How long a call may take, as for a kubelet.
    call_s: float = CALL_TIMEOUT_S
    # How long to look for what should not happen.
    settle_s: float = 1.0
    # Until a driver has released a claim that was deleted without it; None if the user does not want to wait.
    cleanup_s: float | None = None
    # One check at most.
    check_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectableFaults:
    """The faults that can be injected into this driver."""

    process: ProcessFaults | None = None
    api: ApiFaults | None = None
    device: DeviceFaults | None = None


@dataclass(frozen=True, slots=True)
class ClaimShape:
    """Requests and configuration of the claims that the checks create; by default one device of any kind."""

    requests: tuple[DeviceRequest, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


@dataclass(slots=True)
class DriverUnderTest:
    """What the checks work with. Claims that a check creates are deleted after it."""

    # The registration socket, or a directory in which the driver creates it.
    place: Path
    node_name: str
    patience: Patience = Patience()
    client: AsyncClient | None = None
    restarter: Restarter | None = None
    shape: ClaimShape = ClaimShape()
    traces: DriverTraces = field(default_factory=DriverTraces)
    faults: InjectableFaults = InjectableFaults()
    # True if the API server is the kit's own, so that all slices of the driver come from this one.
    is_alone: bool = False
    # Needed if the driver is reached without registration.
    driver_name: str = ""
    history: SliceHistory = field(default_factory=SliceHistory)
    responsiveness: Responsiveness = field(default_factory=Responsiveness)
    info: PluginInfo | None = None
    _socket: Path | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _caller: Caller | None = None
    _registrar: Caller | None = None
    _made: list[ResourceClaim] = field(default_factory=list)
    _numbers: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    # --- Connection -----------------------------------------------------------------------------------------------

    @property
    def driver(self) -> str:
        return self.info.name if self.info is not None else self.driver_name

    @property
    def ended(self) -> str:
        """How the driver ended; empty while it may still answer."""
        return "" if self.restarter is None else self.restarter.ended()

    @property
    def is_connected(self) -> bool:
        return self._caller is not None

    @property
    def caller(self) -> Caller:
        """The connection to the service socket."""
        assert self._caller is not None, "not connected"
        return self._caller

    @property
    def registrar(self) -> Caller:
        if self._registrar is None:
            raise NotTested("the driver is reached at its service socket; use --socket with its registration socket")
        return self._registrar

    @property
    def services(self) -> tuple[PluginService, ...]:
        """The advertised versions; without registration both are tried."""
        return DRA_SERVICES if self.info is None else services_in(self.info, DRA_SERVICES)

    @property
    def health_services(self) -> tuple[PluginService, ...]:
        return () if self.info is None else services_in(self.info, HEALTH_SERVICES)

    @property
    def service(self) -> PluginService:
        """The version that a kubelet would call."""
        if not self.services:
            raise NotTested("the driver advertises no version that a kubelet supports")
        return DRA_V1 if DRA_V1 in self.services else self.services[0]

    async def connect(self) -> None:
        """Find the driver and register it, as a kubelet does; raises `DriverNotFound`."""
        deadline = asyncio.get_running_loop().time() + self.patience.start_s
        problem = f"there is no socket at {self.place}"
        while asyncio.get_running_loop().time() < deadline:
            for socket in self._candidates():
                try:
                    await self._connect_to(socket)
                    return
                except RpcFailed as error:
                    problem = f"{socket}: {error}"
                    await self.disconnect()
            if self.ended:
                raise DriverNotFound(f"no driver registered: {self.ended}")
            await asyncio.sleep(LOOK_AGAIN_S)
        raise DriverNotFound(f"no driver registered within {self.patience.start_s:g} s: {problem}")

    async def disconnect(self) -> None:
        await self._stack.aclose()
        self._caller = self._registrar = None

    async def reconnect(self) -> None:
        await self.disconnect()
        await self.connect()

    def _candidates(self) -> Sequence[Path]:
        if self.place.is_socket():
            return [self.place]
        return [Path(path) for path in sorted(find_sockets(self.place))]

    async def _connect_to(self, socket: Path) -> None:
        first = await self._stack.enter_async_context(calling(socket, dial_s=1.0, responsiveness=self.responsiveness))
        try:
            info = await first.get_info()
        except RpcFailed as error:
            if error.code != "UNIMPLEMENTED" or socket != self.place:
                raise
            # The service socket itself.
            self._caller, self._socket = first, socket
            return
        self.info, self._registrar = info, first
        self._socket = Path(info.endpoint) if info.endpoint else socket
        self._caller = await self._stack.enter_async_context(
            calling(self._socket, dial_s=1.0, responsiveness=self.responsiveness)
        )
        await first.notify()

    async def restart(self) -> None:
        """Kill the driver, start it again, and reconnect."""
        await self.require_restarter().restart()
        await self.reconnect()

    def require_restarter(self) -> Restarter:
        """Checks that change something which the driver repairs after a restart ask for it first."""
        if self.restarter is None:
            raise NotTested(
                "the kit cannot restart the driver; give the driver's command after --, or --restart-command"
            )
        return self.restarter

    # --- Claims ---------------------------------------------------------------------------------------------------

    @property
    def server(self) -> AsyncClient:
        """The API server that the driver uses."""
        if self.client is None:
            raise NotTestable(
                "there is no API server for the claims; give --kubeconfig of the one that the driver uses"
            )
        if not self.driver:
            raise NotTestable("the name of the driver is not known; use --driver")
        return self.client

    @property
    def claims(self) -> ClaimMaker:
        return ClaimMaker(self.server, self.driver, self.node_name)

    def requests(self) -> tuple[DeviceRequest, ...]:
        return self.shape.requests or (exactly("device", self.claims.class_name),)

    def alternatives(self) -> tuple[DeviceRequest, ...]:
        """The same requests with `firstAvailable` of two equal subrequests."""
        return tuple(_as_list(request) for request in self.requests())

    async def claim(self, requests: Sequence[DeviceRequest] | None = None) -> ResourceClaim:
        """Create a claim with allocated devices; skips the check if no device is free."""
        try:
            made = await self.claims.allocated(self.new_name(), requests or self.requests(), self.shape.config)
        except CannotAllocate as error:
            if requests is None and not self._made:
                raise NotTestable(
                    f"{error}; publish a device that fits, or describe another claim with --claim"
                ) from None
            raise NotTested(str(error)) from None
        self._made.append(made)
        return made

    async def claim_with(self, request: str, result: DeviceRequestAllocationResult) -> ResourceClaim:
        """Create a claim with allocated devices, to which this result of a further request is added."""
        own = await self.claim()
        assert own.status.allocation is not None, "it was allocated"
        found = own.status.allocation
        mixed = await self.unallocated_claim([*self.requests(), exactly(request, self.claims.class_name)])
        # The devices cannot belong to two claims.
        await self.claims.delete(own)
        devices = replace(found.devices, results=(*found.devices.results, result))
        return await self.claims.write_allocation(mixed, replace(found, devices=devices))

    async def unallocated_claim(self, requests: Sequence[DeviceRequest] | None = None) -> ResourceClaim:
        made = await self.claims.create(self.new_name(), requests or self.requests(), self.shape.config)
        self._made.append(made)
        return made

    def new_name(self) -> str:
        return f"driver-test-{self._numbers()}"

    async def clean_up(self) -> None:
        """Release and delete the claims of the last check."""
        made, self._made = self._made, []
        for claim in made:
            # A driver that cannot be called has nothing to release.
            with suppress(RpcFailed, Skip):
                await self.caller.unprepare([name_of(claim)], self.service)
            await self.claims.delete(claim)

    # --- Slices ---------------------------------------------------------------------------------------------------

    async def slices(self) -> tuple[ResourceSlice, ...]:
        """The slices of the driver for this node, or for no particular node."""
        found = await self.slices_of_all_nodes()
        return tuple(item for item in found if item.spec.node_name in (None, "", self.node_name))

    async def slices_of_all_nodes(self) -> tuple[ResourceSlice, ...]:
        return tuple(await self.server.list(ResourceSlice, fields=f"spec.driver={self.driver}"))

    @asynccontextmanager
    async def watching_slices(self) -> AsyncIterator[None]:
        """Record every change of the driver's slices inside the block."""
        if self.client is None or not self.driver:
            yield
            return
        watching = asyncio.create_task(self._watch(self.client))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _watch(self, client: AsyncClient) -> None:
        async for event in client.watch(ResourceSlice, fields=f"spec.driver={self.driver}"):
            if event.type == "DELETED":
                self.history.remove(event.object.metadata.name)
            else:
                self.history.put(event.object)


def name_of(claim: ResourceClaim) -> ClaimName:
    return ClaimName(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


def _as_list(request: DeviceRequest) -> DeviceRequest:
    exact = request.exactly
    if exact is None:
        return request
    wanted = DeviceSubRequest(
        name="wanted",
        device_class_name=exact.device_class_name,
        selectors=exact.selectors,
        allocation_mode=exact.allocation_mode,
        count=exact.count,
        tolerations=exact.tolerations,
        capacity=exact.capacity,
    )
    return replace(request, exactly=None, first_available=(wanted, replace(wanted, name="other")))
