"""A ResourceSlice with numbered devices: bit `i` of every mask is the slice's device number `i`.

Everything here depends on the slice alone, so it is computed once, lazily, and stays valid until the slice changes.
`answers` caches what other modules compute about the slice's devices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from dralloc.cel.device import DeviceView
from dralloc.devices import node_selectors
from dralloc.devices.counters import Draws, Groups, draws_of
from dralloc.devices.identity import DeviceId, PoolId
from dralloc.devices.node_selectors import ANYWHERE, Anchor, NodeFacts, NodeSelectorError
from dralloc.devices.published_slice import PublishedSlice, newest
from dralloc.devices.share_terms import ShareTerms, gates_needed, terms_of
from dralloc.devices.taints import TaintRules
from dralloc.kube.codec import encode
from dralloc.kube.resource_v1 import Device, DeviceTaint, ResourceSlice, ResourceSliceSpec

ANSWERS_MAX: Final = 2048
LONG_MASK: Final = 512


def bits_of(mask: int) -> Iterator[int]:
    """The indices of the set bits, ascending."""
    if mask.bit_length() > LONG_MASK:
        yield from _bits_of_long(mask)
        return
    while mask:
        lowest = mask & -mask
        mask ^= lowest
        yield lowest.bit_length() - 1


def _bits_of_long(mask: int) -> Iterator[int]:
    # Clearing single bits copies the whole number each time, which is quadratic.
    digits = bin(mask)[:1:-1]
    bit = digits.find("1")
    while bit >= 0:
        yield bit
        bit = digits.find("1", bit + 1)


class Answers(dict[Hashable, Any]):
    """A cache of results of pure functions, cleared when it is full."""

    def keep(self, key: Hashable, value: Any) -> Any:
        if len(self) >= ANSWERS_MAX:
            self.clear()
        self[key] = value
        return value


@dataclass(eq=False)
class DeviceShape:
    """What a selector sees of a device. Devices with equal content share one shape and its cached answers."""

    driver: str
    device: Device
    answers: Answers = field(default_factory=Answers)

    @cached_property
    def view(self) -> DeviceView:
        """The `device` variable of a selector. Raises CelError if an attribute is invalid."""
        device = self.device
        return DeviceView.build(
            driver=self.driver,
            attributes=device.attributes,
            capacity={name: capacity.value for name, capacity in device.capacity.items()},
            allow_multiple_allocations=bool(device.allow_multiple_allocations),
        )


@dataclass(eq=False)
class SliceKind:
    """What slices have in common whose devices differ only in their names. `answers` must not depend on the names."""

    devices: tuple[Device, ...]
    answers: Answers = field(default_factory=Answers)

    @cached_property
    def is_uniform(self) -> bool:
        """True if all devices are equal."""
        first = self.devices[:1]
        return all(encode(device) == encode(first[0]) for device in self.devices)


class Shapes:
    """The shapes of all devices of a cluster, one for each content, as long as a slice uses it; and the kinds of slices."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[bytes, DeviceShape] = WeakValueDictionary()
        self._kinds: WeakValueDictionary[bytes, SliceKind] = WeakValueDictionary()

    def kind(self, driver: str, devices: tuple[Device, ...]) -> SliceKind:
        nameless = tuple(msgspec.structs.replace(device, name="") for device in devices)
        # The text tells notations of a quantity apart, and the comparison very large quantities. Charges have the order of the
        # capacities, which the text has not.
        content = encode((driver, nameless, [tuple(device.capacity) for device in devices]))
        kind = self._kinds.get(content)
        if kind is None or kind.devices != nameless:
            kind = self._kinds[content] = SliceKind(nameless)
        return kind

    def of(self, driver: str, device: Device) -> DeviceShape:
        amounts = {name: capacity.value.exact_text for name, capacity in device.capacity.items()}
        content = _encoder.encode((driver, device.attributes, amounts, bool(device.allow_multiple_allocations)))
        shape = self._known.get(content)
        if shape is None:
            shape = self._known[content] = DeviceShape(driver, device)
        return shape


_encoder: Final = msgspec.msgpack.Encoder(order="sorted")


@dataclass(frozen=True, eq=False)
class IndexedSlice:
    source: ResourceSlice
    shapes: Shapes
    answers: Answers = field(default_factory=Answers)

    # --- Placement ------------------------------------------------------------------------------------------

    @cached_property
    def name(self) -> str:
        return self.source.metadata.name or ""

    @cached_property
    def pool_id(self) -> PoolId:
        return PoolId.of_slice(self.source)

    @cached_property
    def generation(self) -> int:
        return self.source.spec.pool.generation

    @cached_property
    def node_name(self) -> str:
        return self.source.spec.node_name or ""

    @cached_property
    def selects_per_device(self) -> bool:
        return bool(self.source.spec.per_device_node_selection)

    @cached_property
    def has_counters(self) -> bool:
        return bool(self.source.spec.shared_counters)

    @cached_property
    def has_compatibility_groups(self) -> bool:
        return any(use.compatibility_groups for device in self.devices for use in device.consumes_counters)

    @property
    def needs_partitionable_devices(self) -> bool:
        return self.source.spec.per_device_node_selection is not None or self.has_counters

    @cached_property
    def anchors(self) -> frozenset[Anchor]:
        """Every node that can see the slice has at least one of these anchors."""
        if self.selects_per_device:
            return frozenset().union(*map(_anchors_of, self.devices))
        return _anchors_of(self.source.spec)

    def is_for(self, node: NodeFacts) -> bool:
        """True if the slice, or with per-device node selection at least one of its devices, is for the node."""
        if self.selects_per_device:
            return any(_is_placed(device, node) for device in self.devices)
        return _is_placed(self.source.spec, node)

    def devices_for(self, node: NodeFacts) -> tuple[int, Mapping[int, NodeSelectorError]]:
        """The mask of the devices that are for the node, and the errors of invalid node selectors by device."""
        if not self.selects_per_device:
            return self.everything, {}
        mask, faults = 0, {}
        for bit, device in enumerate(self.devices):
            try:
                mask |= _is_placed(device, node) << bit
            except NodeSelectorError as fault:
                faults[bit] = fault
        return mask, faults

    # --- Devices --------------------------------------------------------------------------------------------

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        return self.source.spec.devices or ()

    @cached_property
    def everything(self) -> int:
        return (1 << len(self.devices)) - 1

    @cached_property
    def bit_of(self) -> Mapping[str, int]:
        return {device.name: bit for bit, device in enumerate(self.devices)}

    @cached_property
    def shareable(self) -> int:
        return self._devices_that(lambda device: bool(device.allow_multiple_allocations))

    @cached_property
    def counting(self) -> int:
        """Devices that draw from counters."""
        return self._devices_that(lambda device: bool(device.consumes_counters))

    @cached_property
    def tainted(self) -> int:
        return self._devices_that(lambda device: bool(device.taints))

    def taints_from(self, rules: TaintRules) -> Iterator[tuple[int, DeviceTaint]]:
        """Each taint that a rule puts on devices of the slice, with the mask of these devices."""
        for device, taint, _ in rules.taints_in_pool(self.pool_id):
            if device is None:
                yield self.everything, taint
            elif (bit := self.bit_of.get(device)) is not None:
                yield 1 << bit, taint

    @cached_property
    def binding(self) -> int:
        """Devices with binding conditions."""
        return self._devices_that(lambda device: bool(device.binding_conditions))

    def _devices_that(self, is_so: Callable[[Device], bool]) -> int:
        return sum(1 << bit for bit, device in enumerate(self.devices) if is_so(device))

    def device_id(self, bit: int) -> DeviceId:
        return self.pool_id.device(self.devices[bit].name)

    @cached_property
    def kind(self) -> SliceKind:
        return self.shapes.kind(self.source.spec.driver, self.devices)

    def shape(self, bit: int) -> DeviceShape:
        shape = self._shapes.get(bit)
        if shape is None:
            shape = self._shapes[bit] = self.shapes.of(self.source.spec.driver, self.devices[bit])
        return shape

    @cached_property
    def _shapes(self) -> dict[int, DeviceShape]:
        return {}

    # --- Capacities -----------------------------------------------------------------------------------------

    @cached_property
    def terms(self) -> Mapping[int, ShareTerms]:
        """The devices of which a share consumes what depends on other shares."""
        found = ((bit, terms_of(device)) for bit, device in enumerate(self.devices) if device.capacity)
        return {bit: terms for bit, terms in found if terms is not None}

    @cached_property
    def gated(self) -> Mapping[str, int]:
        """The devices that need optional feature gates, by gate."""
        masks: dict[str, int] = {}
        for bit, device in enumerate(self.devices):
            for gate in gates_needed(device) if device.capacity or device.remainder else ():
                masks[gate] = masks.get(gate, 0) | 1 << bit
        return masks

    # --- Counters -------------------------------------------------------------------------------------------

    @cached_property
    def draws(self) -> tuple[Draws, ...]:
        """What each device draws from its pool's counters."""
        return tuple(draws_of(device) for device in self.devices)

    @cached_property
    def published(self) -> PublishedSlice:
        """The slice as the over-commit rules see it."""
        return PublishedSlice.of(self.source)

    @cached_property
    def groups(self) -> tuple[tuple[tuple[str, Groups], ...], ...]:
        """The counter sets that each device draws from, with its compatibility groups there."""
        return tuple(
            tuple((use.counter_set, frozenset(use.compatibility_groups)) for use in device.consumes_counters)
            for device in self.devices
        )


def newest_indexed(slices: Iterable[IndexedSlice]) -> list[IndexedSlice]:
    """The slices of the newest generation among slices of one pool."""
    return newest(slices, attrgetter("generation"))


def _is_placed(placed: Device | ResourceSliceSpec, node: NodeFacts) -> bool:
    if placed.node_name:
        return placed.node_name == node.name
    if placed.all_nodes:
        return True
    return placed.node_selector is not None and node_selectors.matches(placed.node_selector, node)


def _anchors_of(placed: Device | ResourceSliceSpec) -> frozenset[Anchor]:
    if placed.node_name:
        return frozenset({node_selectors.name_anchor(placed.node_name)})
    if placed.all_nodes:
        return frozenset({ANYWHERE})
    return node_selectors.anchors(placed.node_selector) if placed.node_selector is not None else frozenset()
