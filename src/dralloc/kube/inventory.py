"""The names of the attributes and capacities that devices have; selectors for other names never match."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dralloc.cel.attribute_reads import Reads
from dralloc.kube.resource_v1 import ResourceSlice

# Domain and name.
QualifiedName = tuple[str, str]

ATTRIBUTE: Final = "attribute"
CAPACITY: Final = "capacity"


@dataclass(frozen=True, slots=True)
class Inventory:
    """The number of devices, and on how many of them each name exists."""

    device_count: int
    attributes: Mapping[QualifiedName, int]
    capacity: Mapping[QualifiedName, int]

    def count(self, sort: str, name: QualifiedName) -> int:
        return (self.attributes if sort == ATTRIBUTE else self.capacity).get(name, 0)


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A name that no device has, and the name that was probably intended."""

    sort: str
    domain: str
    name: str
    likely: QualifiedName | None

    def __str__(self) -> str:
        text = f"no device in these files has the {self.sort} {self.domain}/{self.name}"
        return f"{text}; did you mean {'/'.join(self.likely)}?" if self.likely else text


def take_inventory(slices: Iterable[ResourceSlice]) -> Inventory:
    """Counts the names on the devices of all these slices."""
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
    """Returns the names in an expression that no device has; empty if there are no devices."""
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
    """Returns domain and name; a name without a domain has the driver's."""
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _likely(asked: QualifiedName, known: Mapping[QualifiedName, int]) -> QualifiedName | None:
    """Returns a similar name in the same domain, or the same name in another domain."""
    domain, name = asked
    alike = difflib.get_close_matches(name, [other for where, other in known if where == domain], n=1, cutoff=0.7)
    if alike:
        return domain, alike[0]
    elsewhere = sorted(where for where, other in known if other == name)
    alike = difflib.get_close_matches(domain, elsewhere, n=1, cutoff=0) if elsewhere else []
    return (alike[0], name) if alike else None
