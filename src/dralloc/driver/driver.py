"""The base class of drivers.

Every method may be a plain function or a coroutine. Plain functions run in a thread and may block. Calls for claims never overlap,
so they need no locks.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, cast

from dralloc.driver.claims import AllocatedClaim, PreparedDevice
from dralloc.driver.devices import Pool
from dralloc.driver.health import DeviceHealth
from dralloc.kube.resource_v1 import Device

Result = TypeVar("Result")

# Pools, or devices that form one pool named after the node.
Inventory = Iterable[Pool | Device]


class Driver(ABC):
    """The hardware-specific part of a driver."""

    # A DNS subdomain of the vendor with at most 63 characters, such as "gpu.example.com".
    name: str

    @abstractmethod
    def devices(self) -> Inventory | Awaitable[Inventory]:
        """The present devices. Called at the start and by `Plugin.republish`."""

    @abstractmethod
    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice] | Awaitable[Iterable[PreparedDevice]]:
        """Prepare the devices of the claim for containers.

        Called again after an interrupted preparation and after a reboot. An exception fails this claim only; its text is shown to
        the pod's owner.
        """

    def unprepare(self, claim: AllocatedClaim) -> Awaitable[None] | None:  # noqa: ARG002 - used by subclasses
        """Undo `prepare`. Gets the claim as it was prepared, even if it was deleted since; may be called repeatedly."""
        return None

    def health(self) -> Iterable[DeviceHealth] | Awaitable[Iterable[DeviceHealth]] | None:
        """The health of all devices, polled every few seconds. A driver that does not override it reports no health."""
        return None

    async def monitor(self, plugin: Any) -> None:  # noqa: B027 - most drivers need none
        """Runs concurrently: watch the hardware, and call `republish` or `check_health` of the `Plugin` that is passed.

        Called again, some seconds later, if it raises an exception.
        """

    @property
    def reports_health(self) -> bool:
        """True if the driver overrides `health`; only then the health service is advertised."""
        return type(self).health is not Driver.health


async def call(function: Callable[..., Result | Awaitable[Result]], *arguments: Any) -> Result:
    """Call a method of a driver, plain function or coroutine."""
    if inspect.iscoroutinefunction(function):
        return cast("Result", await function(*arguments))
    result = await asyncio.to_thread(function, *arguments)
    if inspect.isawaitable(result):
        return cast("Result", await result)
    return result
