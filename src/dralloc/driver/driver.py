"""What a vendor writes: a subclass of `Driver`, or functions that are handed to `DriverFunctions`.

Every method may be a plain function or a coroutine. A plain function runs in a thread of its own, so it may block; calls for claims
never overlap, so it needs no locks.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, cast

from dralloc.api.resource_v1 import Device
from dralloc.driver.claims import AllocatedClaim, PreparedDevice
from dralloc.driver.devices import Pool
from dralloc.driver.health import DeviceHealth

Result = TypeVar("Result")

# What `devices` may give: pools, or devices that make one pool named after the node.
Inventory = Iterable[Pool | Device]


class Driver(ABC):
    """The part of a driver that knows the hardware."""

    # A DNS name that the vendor owns, at most 63 characters, such as "gpu.example.com".
    name: str

    @abstractmethod
    def devices(self) -> Inventory | Awaitable[Inventory]:
        """What is there now. Asked at the start and whenever `Plugin.republish` is called."""

    @abstractmethod
    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice] | Awaitable[Iterable[PreparedDevice]]:
        """Make the claim's devices ready for containers.

        It is called again for a claim whose preparation was interrupted, and after a start of the machine. An exception
        fails this claim only; its text is shown to the pod's owner.
        """

    def unprepare(self, claim: AllocatedClaim) -> Awaitable[None] | None:  # noqa: ARG002 - for those who override it
        """Undo it. Called with the claim as it was when it was prepared, also if it is deleted by now; may be repeated."""
        return None

    def health(self) -> Iterable[DeviceHealth] | Awaitable[Iterable[DeviceHealth]] | None:
        """The health of all devices, asked every few seconds. A driver that does not override it reports none."""
        return None

    async def monitor(self, plugin: Any) -> None:  # noqa: B027 - most drivers need none
        """Runs concurrently: watch the hardware, and call `republish` or `check_health` of the `Plugin` that is passed."""

    @property
    def reports_health(self) -> bool:
        return type(self).health is not Driver.health


async def call(function: Callable[..., Result | Awaitable[Result]], *arguments: Any) -> Result:
    """The result of a method of a driver, whichever kind of function it is."""
    if inspect.iscoroutinefunction(function):
        return cast("Result", await function(*arguments))
    result = await asyncio.to_thread(function, *arguments)
    if inspect.isawaitable(result):
        return cast("Result", await result)
    return result
