"""The SDK for DRA drivers: a driver lists its devices and prepares them; the SDK does everything else.

Start with `docs/writing-a-driver.md`.
"""

from dralloc.driver.claims import (
    AllocatedClaim,
    AllocatedDevice,
    BadConfig,
    ClaimReference,
    Config,
    DeviceKey,
    PreparedDevice,
)
from dralloc.driver.devices import Pool, capacity, counter_set, device, taint, version
from dralloc.driver.driver import Driver
from dralloc.driver.driver_functions import DriverFunctions
from dralloc.driver.health import DeviceHealth, Health
from dralloc.driver.plugin import Plugin
from dralloc.driver.program import run
from dralloc.driver.settings import Settings
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.resource_v1 import Device, DeviceCapacity, NetworkDeviceData
from dralloc.node.kubelet.cdi import ContainerEdits, DeviceNode, Hook, Mount, NetDevice

__all__ = [
    "AllocatedClaim",
    "AllocatedDevice",
    "BadConfig",
    "ClaimReference",
    "Condition",
    "Config",
    "ContainerEdits",
    "Device",
    "DeviceCapacity",
    "DeviceHealth",
    "DeviceKey",
    "DeviceNode",
    "Driver",
    "DriverFunctions",
    "Health",
    "Hook",
    "Mount",
    "NetDevice",
    "NetworkDeviceData",
    "Plugin",
    "Pool",
    "PreparedDevice",
    "Settings",
    "capacity",
    "counter_set",
    "device",
    "run",
    "taint",
    "version",
]
