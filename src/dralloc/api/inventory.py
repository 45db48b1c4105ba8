"""Which attributes and capacities devices have: what tells a selector that asks for nothing that exists."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dralloc.api.resource_v1 import ResourceSlice
from dralloc.cel.attribute_reads import Reads

# Domain and name.
QualifiedName = tuple[str, str]

ATTRIBUTE: Final = "attribute"
CAPACITY: Final = "capacity"


@dataclass(frozen=True, slots=True)
class Inventory:
    """How many devices there are, and on how many of them each name exists."""

    device_count: int
    attributes: Mapping[QualifiedName, int]
    capacity: Mapping[QualifiedName, int]

    def count(self, sort: str, name: QualifiedName) -> int:
        return (self.attributes if sort == ATTRIBUTE else self.capacity).get(name, 0)


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A name that no device has, and the one that was likely meant."""

    sort: str
    domain: str
    name: str
    likely: QualifiedName | None

    def __str__(self) -> str:
        text = f"no device in these files has the {self.sort} {self.domain}/{self.name}"
        return f"{text}; is {'/'.join(self.likely)} meant?" if self.likely else text


def take_inventory(slices: Iterable[ResourceSlice]) -> Inventory:
    """What the devices of all these slices have."""
    attributes: Counter[QualifiedName] = Counter()
    capacity: Counter[QualifiedName] = Counter()
    device_count = 0
    for resource_slice in slices:
        driver = resource_slice.spec.driver
        for device in resource_slice.spec.devices or ():
            device_count += 1
            attributes.update({split_name(name, driver) for name in device.attributes or ()})
            capacity.update({split_name(name, driver) for name in device.capacity or ()})
    return Inventory(device_count, attributes, capacity)


def find_unknown_names(reads: Reads, inventory: Inventory) -> tuple[UnknownName, ...]:
    """What an expression asks for and no device has; nothing where there are no devices to know it from."""
    if not inventory.device_count:
        return ()
    return tuple(
        UnknownName(sort, domain, name, _likely((domain, name), known))
        for sort, asked, known in (
            (ATTRIBUTE, reads.attributes, inventory.attributes),
            (CAPACITY, reads.capacity, inventory.capacity),
        )
        for domain, name in sorted(asked)
        if (domain, name) not in known
    )


def split_name(name: str, driver: str) -> QualifiedName:
    """Domain and name: a name without a domain belongs to the driver's."""
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _likely(asked: QualifiedName, known: Mapping[QualifiedName, int]) -> QualifiedName | None:
    """A name that is written nearly the same in that domain, or the same name in another one."""
    domain, name = asked
    alike = difflib.get_close_matches(name, [other for where, other in known if where == domain], n=1, cutoff=0.7)
    if alike:
        return domain, alike[0]
    elsewhere = sorted(where for where, other in known if other == name)
    alike = difflib.get_close_matches(domain, elsewhere, n=1, cutoff=0) if elsewhere else []
    return (alike[0], name) if alike else None
