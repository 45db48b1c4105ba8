"""What must be written so that the slices of a pool say what is wanted: the smallest change, in a safe order.

The rules are those of Kubernetes' own publisher, so that a driver can change from one to the other over the same slices:

- The index of a slice in its pool is the number at the front of its name, unless the wanted slices have names of their own.
- If one slice changes, it is written and the generation stays. If more than one write is needed, all slices are written with a new
  generation; until it is complete, nothing is allocated from the pool.
- Obsolete slices are deleted first: a missing device is better than one that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import hexdigits
from typing import Final

from msgspec.structs import replace

from dralloc.devices.published_slice import newest_generation
from dralloc.kube.canonical_form import canonicalize, with_canonical_times
from dralloc.kube.meta_v1 import ObjectMeta, OwnerReference
from dralloc.kube.resource_v1 import Device, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec
from dralloc.kube.wire import map_changed

INDEX_DIGITS_MIN: Final = 5


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    """Delete the slice unless it has changed."""

    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class UpdateSlice:
    index: int
    slice: ResourceSlice


@dataclass(frozen=True, slots=True)
class CreateSlice:
    index: int
    slice: ResourceSlice


SliceAction = DeleteSlice | UpdateSlice | CreateSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPool:
    """The slices of a pool in their order; generation and count are filled in by the plan."""

    slices: tuple[ResourceSliceSpec, ...] = ()
    # Names, labels and owners of the slices. Without them the server names each slice after its index, driver and owner.
    metadata: tuple[ObjectMeta, ...] = ()
    owner: OwnerReference | None = None
    # The lowest generation to publish with.
    generation: int = 0


def plan_pool(wanted: WantedPool, existing: Iterable[ResourceSlice]) -> tuple[SliceAction, ...]:
    """The writes in their order; none if everything is as wanted. All slices of a pool without wanted slices are deleted."""
    found = sorted(existing, key=lambda item: item.metadata.name)
    newest = newest_generation(found)
    count = len(wanted.slices)
    current = _by_index(wanted, [item for item in found if item.spec.pool.generation == newest])
    kept = {item.metadata.name for item in current.values()}
    obsolete = tuple(DeleteSlice(item) for item in found if item.metadata.name not in kept)
    if not wanted.slices:
        return obsolete
    pool = ResourcePool(name=wanted.slices[0].pool.name, generation=newest, resource_slice_count=count)
    proposed = {index: _updated(index, item, wanted, pool) for index, item in current.items()}
    changed = {index for index, item in proposed.items() if item.spec != current[index].spec}
    if wanted.generation > newest:
        pool = replace(pool, generation=wanted.generation)
    elif len(current) < count or len(changed) > 1:
        pool = replace(pool, generation=newest + 1)
    rewritten = sorted(changed if pool.generation == newest else current)
    updates = (UpdateSlice(index, _with_pool(proposed[index], pool)) for index in rewritten)
    creates = (CreateSlice(index, _created(index, wanted, pool)) for index in range(count) if index not in current)
    return (*obsolete, *updates, *creates)


def is_as_wanted(wanted: ResourceSliceSpec, stored: ResourceSliceSpec) -> bool:
    """True if the server kept everything that was written; the times that it adds to taints are ignored."""
    return _filled_in(wanted, stored.devices or ()) == stored


# --- Indices ------------------------------------------------------------------------------------------------------


def _by_index(wanted: WantedPool, slices: Iterable[ResourceSlice]) -> Mapping[int, ResourceSlice]:
    """The slices that have an index in the pool, the first for each index."""
    by_name = {metadata.name: index for index, metadata in enumerate(wanted.metadata)}
    count = len(wanted.slices)
    digits = _digits(count)
    current: dict[int, ResourceSlice] = {}
    for item in slices:
        name = item.metadata.name
        index = by_name.get(name) if by_name else _index_in(name, digits)
        if index is not None and index < count:
            current.setdefault(index, item)
    return current


def _digits(count: int) -> int:
    return max(INDEX_DIGITS_MIN, len(f"{max(count - 1, 0):x}"))


def _index_in(name: str, digits: int) -> int | None:
    number, dash, _ = name.partition("-")
    if not dash or len(number) != digits or not set(number) <= set(hexdigits):
        return None
    return int(number, 16)


# --- Content ------------------------------------------------------------------------------------------------------


def _created(index: int, wanted: WantedPool, pool: ResourcePool) -> ResourceSlice:
    spec = wanted.slices[index]
    metadata = wanted.metadata[index] if wanted.metadata else _generated_name(index, wanted)
    return _with_pool(ResourceSlice(metadata=metadata, spec=_filled_in(spec, ())), pool)


def _generated_name(index: int, wanted: WantedPool) -> ObjectMeta:
    owners = (wanted.owner,) if wanted.owner is not None else ()
    number = f"{index:0{_digits(len(wanted.slices))}x}"
    parts = (number, wanted.slices[index].driver, *(owner.name for owner in owners))
    return ObjectMeta(generate_name="-".join(parts) + "-", owner_references=owners)


def _updated(index: int, current: ResourceSlice, wanted: WantedPool, pool: ResourcePool) -> ResourceSlice:
    metadata = current.metadata
    if wanted.metadata:
        stated = wanted.metadata[index]
        metadata = replace(metadata, labels=stated.labels, owner_references=stated.owner_references)
    spec = _filled_in(wanted.slices[index], current.spec.devices or ())
    return _with_pool(replace(current, metadata=metadata, spec=spec), pool)


def _with_pool(item: ResourceSlice, pool: ResourcePool) -> ResourceSlice:
    return replace(item, spec=replace(item.spec, pool=pool))


def _filled_in(wanted: ResourceSliceSpec, before: Iterable[Device]) -> ResourceSliceSpec:
    """The wanted spec as the server would store it; taints without a time keep the one that they have now."""
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
