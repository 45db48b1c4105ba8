"""Shares network interfaces: many pods on one interface, each with guaranteed bandwidth.

Stories 1 to 3 of KEP-5075: interfaces that several claims share, two of them that are distinct by name, and guaranteed
bandwidth with a minimum, a maximum and a default.
"""

import logging
import os
from collections.abc import Iterable

from shaping import (
    FIRST_CLASS,
    LAST_CLASS,
    Commands,
    Link,
    Share,
    add_share,
    remove_share,
    set_up_line,
    shareable_bits,
)

from dralloc.driver import (
    AllocatedClaim,
    AllocatedDevice,
    Condition,
    Device,
    DeviceCapacity,
    DeviceHealth,
    Driver,
    Health,
    NetDevice,
    NetworkDeviceData,
    PreparedDevice,
    capacity,
    device,
    run,
)

LEAST_BITS = 10_000_000
DEFAULT_BITS = 100_000_000

_logger = logging.getLogger(__name__)


class NicQosDriver(Driver):
    name = "nic.example.com"

    def __init__(self, interfaces: tuple[str, ...], commands: Commands, line_bits: int, *, moves: bool = False) -> None:
        self._interfaces = interfaces
        self._commands = commands
        self._line_bits = line_bits
        # True if the container runtime moves the interface of a share into the container (CDI 1.1).
        self._moves = moves

    def devices(self) -> Iterable[Device]:
        links = self._commands.links()
        present = [name for name in self._interfaces if name in links]
        for name in present:
            # The queue may exist since an earlier start.
            queue, *classes = set_up_line(name, self._line_of(name))
            self._commands.try_to_run(queue)
            for command in classes:
                self._commands.run(command)
        return [
            device(
                name.lower(),
                attributes={
                    "interfaceName": name,
                    "mac": links[name].address,
                    "mtu": links[name].mtu,
                    "enforced": not self._commands.is_dry,
                },
                capacity={"bandwidth": _bandwidth(self._line_of(name))},
                shareable=True,
            )
            for name in present
        ]

    def health(self) -> Iterable[DeviceHealth]:
        links = self._commands.links()
        return [_health(name.lower(), links.get(name)) for name in self._interfaces]

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        before = {prepared.key: prepared.state["class"] for prepared in claim.prepared}
        taken = {prepared.state["class"] for other in claim.others for prepared in other.prepared}
        prepared = []
        for allocated in claim.devices:
            number = before.get(allocated.key) or _free_class(taken)
            taken.add(number)
            share = self._share(allocated, number)
            self._make(share)
            prepared.append(self._ready(allocated, share))
        return prepared

    def unprepare(self, claim: AllocatedClaim) -> None:
        numbers = {prepared.key: prepared.state["class"] for prepared in claim.prepared}
        for allocated in claim.devices:
            # Without a state the preparation was interrupted: the interface may exist, the class is not known.
            share = self._share(allocated, numbers.get(allocated.key, LAST_CLASS))
            for command in remove_share(share):
                self._commands.try_to_run(command)

    def _make(self, share: Share) -> None:
        """Create the interface of a share; leftovers of an interrupted attempt are removed first."""
        for command in remove_share(share):
            self._commands.try_to_run(command)
        for command in add_share(share):
            self._commands.run(command)

    def _ready(self, allocated: AllocatedDevice, share: Share) -> PreparedDevice:
        enforced = "False" if self._commands.is_dry else "True"
        name = f"NIC_QOS_{share.share_id[:8].upper()}"
        return allocated.prepared(
            env={
                name: f"interface={share.name},on={share.interface},bits={share.rate_bits},ceiling={share.ceiling_bits}"
            },
            net_devices=[NetDevice(host_interface_name=share.name, name=share.name)] if self._moves else [],
            network=NetworkDeviceData(interface_name=share.name, hardware_address=share.address),
            conditions=[
                Condition(type="Guaranteed", status=enforced, reason="Shaped", message=f"{share.rate_bits} bit/s")
            ],
            state={"class": share.class_number},
        )

    def _share(self, allocated: AllocatedDevice, number: int) -> Share:
        interface = next(name for name in self._interfaces if name.lower() == allocated.name)
        limit = allocated.limits.get("bandwidth")
        return Share(
            interface=interface,
            share_id=allocated.share_id or allocated.name,
            rate_bits=allocated.consumed["bandwidth"].value,
            ceiling_bits=self._line_of(interface) if limit is None else limit.value,
            class_number=number,
        )

    def _line_of(self, interface: str) -> int:
        return self._commands.speed_bits(interface) or self._line_bits


def _bandwidth(line_bits: int) -> DeviceCapacity:
    most = shareable_bits(line_bits) // LEAST_BITS * LEAST_BITS
    return capacity(most, default=DEFAULT_BITS, minimum=LEAST_BITS, maximum=most, step=LEAST_BITS)


def _health(device: str, link: Link | None) -> DeviceHealth:
    if link is None:
        return DeviceHealth(device=device, health=Health.UNHEALTHY, message="the interface is gone")
    if link.has_carrier is None:
        return DeviceHealth(device=device, health=Health.UNKNOWN)
    if not link.has_carrier:
        return DeviceHealth(device=device, health=Health.UNHEALTHY, message="the interface has no carrier")
    return DeviceHealth(device=device, health=Health.HEALTHY)


def _free_class(taken: set[int]) -> int:
    return next(number for number in range(FIRST_CLASS, LAST_CLASS) if number not in taken)


def main() -> None:
    interfaces = tuple(filter(None, os.environ.get("NIC_QOS_INTERFACES", "").split(",")))
    commands = Commands(os.environ.get("NIC_QOS_NETNS", ""))
    if os.environ.get("NIC_QOS_DRY") or not commands.are_allowed(interfaces):
        _logger.warning("bandwidth is accounted for and not enforced: `tc` is missing or not allowed here")
        commands.is_dry = True
    line_bits = int(os.environ.get("NIC_QOS_LINE_BITS", "10000000000"))
    run(NicQosDriver(interfaces, commands, line_bits, moves=bool(os.environ.get("NIC_QOS_MOVE"))))


if __name__ == "__main__":
    main()
