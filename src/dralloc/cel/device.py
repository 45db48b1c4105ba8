"""The one variable of a selector: `device`.

Names are split into domain and identifier; a name without a domain has the driver's. All attributes are converted
before evaluation, and a malformed one makes every selector fail on the device, even `true`, as in Kubernetes.
Conversion is lazy, because a cluster has a hundred thousand devices and most are never evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.values import DomainMap, Map, Value
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.semver import Semver, SemverError

Int = int
Bool = bool


class Attribute(Protocol):
    """An attribute of a device; one member is set."""

    @property
    def int(self) -> Int | None: ...
    @property
    def bool(self) -> Bool | None: ...
    @property
    def string(self) -> str | None: ...
    @property
    def version(self) -> str | None: ...
    @property
    def ints(self) -> Sequence[Int] | None: ...
    @property
    def bools(self) -> Sequence[Bool] | None: ...
    @property
    def strings(self) -> Sequence[str] | None: ...
    @property
    def versions(self) -> Sequence[str] | None: ...


class Capacity(Protocol):
    """An amount; selectors do not see its request policy."""

    @property
    def value(self) -> Quantity: ...


class DeviceView:
    """A device as selectors see it."""

    # Generated code reads the members without an underscore; all but two are computed on first use.
    __slots__ = ("_attributes", "_capacity", "allow_multiple_allocations", "as_map", "attributes", "capacity", "driver")

    driver: str
    allow_multiple_allocations: bool
    attributes: DomainMap
    capacity: DomainMap
    as_map: Map

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Attribute] | None,
        capacity: Mapping[str, Quantity | Capacity] | None,
        allow_multiple_allocations: bool | None,
    ) -> None:
        self.driver = driver
        self.allow_multiple_allocations = allow_multiple_allocations is True
        self._attributes = attributes
        self._capacity = capacity

    @classmethod
    def build(
        cls,
        driver: str,
        attributes: Mapping[str, Attribute] | None = None,
        capacity: Mapping[str, Quantity | Capacity] | None = None,
        allow_multiple_allocations: bool | None = None,
    ) -> DeviceView:
        """Returns the view of a device. It keeps the mappings, which must not change."""
        return cls(driver, attributes, capacity, allow_multiple_allocations)

    def __getattr__(self, name: str) -> Value:
        """Computes a member on first use. Raises `CelEvaluationError` if an attribute is malformed."""
        if name == "attributes":
            self.attributes = _by_domain(self.driver, _values_of(self._attributes or {}))
            return self.attributes
        if name == "capacity":
            self.capacity = _by_domain(self.driver, _amounts_of(self._capacity or {}))
            return self.capacity
        if name == "as_map":
            self.as_map = {
                "driver": self.driver,
                "attributes": self.attributes,
                "capacity": self.capacity,
                "allowMultipleAllocations": self.allow_multiple_allocations,
            }
            return self.as_map
        raise AttributeError(name)


def _amounts_of(capacity: Mapping[str, Quantity | Capacity]) -> dict[str, Quantity]:
    return {name: amount if isinstance(amount, Quantity) else amount.value for name, amount in capacity.items()}


def _values_of(attributes: Mapping[str, Attribute]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, attribute in attributes.items():
        try:
            values[name] = _value_of(attribute)
        except (SemverError, CelEvaluationError) as fault:
            raise CelEvaluationError(f"attribute {name}: {fault}") from None
    return values


def _value_of(attribute: Attribute) -> Value:
    if attribute.ints is not None:
        return list(attribute.ints)
    if attribute.bools is not None:
        return list(attribute.bools)
    if attribute.strings is not None:
        return list(attribute.strings)
    if attribute.versions is not None:
        return [Semver.parse(version) for version in attribute.versions]
    if attribute.int is not None:
        return attribute.int
    if attribute.bool is not None:
        return attribute.bool
    if attribute.string is not None:
        return attribute.string
    if attribute.version is not None:
        return Semver.parse(attribute.version)
    raise CelEvaluationError("the attribute has no value")


def _by_domain(driver: str, named: Mapping[str, Value]) -> DomainMap:
    domains = DomainMap()
    for name, value in named.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            domain, identifier = driver, name
        elif domain == driver and identifier in named:
            # Both spellings of one name occur: Kubernetes takes either, we the qualified one.
            domains.setdefault(domain, {}).pop(identifier, None)
        inner = domains.get(domain)
        if inner is None:
            inner = domains[domain] = {}
        if slash or identifier not in inner:
            inner[identifier] = value
    return domains
