"""What must be written so that a pool's slices say what the driver wants: the smallest change, in the order that misleads nobody.

The rules are those of Kubernetes' own publisher, so that a driver can change from one to the other over the same slices:

- A slice's place in its pool is the number at the front of its name.
- One slice changed: it is written, and the generation stays. More than one write is needed: a new generation, with which all
  slices are written; until they are complete, nothing is allocated from the pool.
- What is not wanted any more is deleted first: rather no device than one that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import hexdigits
from typing import Final

from msgspec.structs import replace

from dralloc.api.canonical_form import canonicalize, with_canonical_times
from dralloc.api.meta_v1 import ObjectMeta, OwnerReference
from dralloc.api.resource_v1 import Device, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec
from dralloc.api.wire import map_changed

PLACE_DIGITS_MIN: Final = 5


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    """Remove a slice, if it is still this one."""

    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class UpdateSlice:
    place: int
    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class CreateSlice:
    place: int
    slice: ResourceSlice


SliceAction = DeleteSlice | UpdateSlice | CreateSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPool:
    """A pool's slices in their order, as `slices_of` gives them, and who owns them."""

    slices: tuple[ResourceSliceSpec, ...] = ()
    owner: OwnerReference | None = None
    # A generation that the driver insists on.
    generation: int = 0


def plan_pool(wanted: WantedPool, existing: Iterable[ResourceSlice]) -> tuple[SliceAction, ...]:
    """The writes in their order; none where everything is as it should be. A pool without slices loses all it has."""
    found = sorted(existing, key=lambda item: item.metadata.name)
    newest = max((item.spec.pool.generation for item in found), default=0)
    count = len(wanted.slices)
    current = _by_place(found, newest, count)
    kept = {item.metadata.name for item in current.values()}
    obsolete = tuple(DeleteSlice(item) for item in found if item.metadata.name not in kept)
    if not wanted.slices:
        return obsolete
    pool = ResourcePool(name=wanted.slices[0].pool.name, generation=newest, resource_slice_count=count)
    proposed = {place: _updated(item, wanted.slices[place], pool) for place, item in current.items()}
    changed = {place for place, item in proposed.items() if item.spec != current[place].spec}
    if wanted.generation > newest:
        pool = replace(pool, generation=wanted.generation)
    elif len(current) < count or len(changed) > 1:
        pool = replace(pool, generation=newest + 1)
    rewritten = sorted(changed if pool.generation == newest else current)
    updates = (UpdateSlice(place, _with_pool(proposed[place], pool)) for place in rewritten)
    creates = (CreateSlice(place, _created(place, wanted, pool)) for place in range(count) if place not in current)
    return (*obsolete, *updates, *creates)


def is_as_wanted(wanted: ResourceSliceSpec, stored: ResourceSliceSpec) -> bool:
    """Whether the server kept all that was written; that it says since when a taint is there is no difference."""
    return _filled_in(wanted, stored.devices or ()) == stored


# --- Places -------------------------------------------------------------------------------------------------------


def _by_place(found: Sequence[ResourceSlice], generation: int, count: int) -> Mapping[int, ResourceSlice]:
    """The slices of this generation that stand in one of the places, one for each place."""
    digits = _digits(count)
    current: dict[int, ResourceSlice] = {}
    for item in found:
        place = _place_of(item.metadata.name, digits)
        if item.spec.pool.generation == generation and place is not None and place < count:
            current.setdefault(place, item)
    return current


def _digits(count: int) -> int:
    return max(PLACE_DIGITS_MIN, len(f"{max(count - 1, 0):x}"))


def _place_of(name: str, digits: int) -> int | None:
    number, dash, _ = name.partition("-")
    if not dash or len(number) != digits or not set(number) <= set(hexdigits):
        return None
    return int(number, 16)


# --- Content ------------------------------------------------------------------------------------------------------


def _created(place: int, wanted: WantedPool, pool: ResourcePool) -> ResourceSlice:
    spec = wanted.slices[place]
    parts = [f"{place:0{_digits(len(wanted.slices))}x}", spec.driver, *([wanted.owner.name] if wanted.owner else [])]
    metadata = ObjectMeta(generate_name="-".join(parts) + "-", owner_references=(wanted.owner,) if wanted.owner else ())
    return _with_pool(ResourceSlice(metadata=metadata, spec=_filled_in(spec, ())), pool)


def _updated(current: ResourceSlice, wanted: ResourceSliceSpec, pool: ResourcePool) -> ResourceSlice:
    return _with_pool(replace(current, spec=_filled_in(wanted, current.spec.devices or ())), pool)


def _with_pool(item: ResourceSlice, pool: ResourcePool) -> ResourceSlice:
    return replace(item, spec=replace(item.spec, pool=pool))


def _filled_in(wanted: ResourceSliceSpec, before: Iterable[Device]) -> ResourceSliceSpec:
    """What is wanted, in the server's spelling, with the time since when a taint is there where the driver does not say."""
    taints = {device.name: device.taints for device in before if device.taints}
    spec = canonicalize(with_canonical_times(ResourceSlice(spec=wanted))).spec
    devices = map_changed(spec.devices or (), lambda device: _with_times(device, taints.get(device.name, ())))
    return replace(spec, devices=devices or None)


def _with_times(device: Device, before: Sequence[DeviceTaint]) -> Device:
    if not before or not device.taints:
        return device
    since = {(taint.key, taint.value, taint.effect): taint.time_added for taint in before}
    taints = tuple(
        replace(taint, time_added=since.get((taint.key, taint.value, taint.effect))) if not taint.time_added else taint
        for taint in device.taints
    )
    return replace(device, taints=taints)
