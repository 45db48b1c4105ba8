"""What must be written so that exactly the wanted slices are published, pool by pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from dralloc.api.meta_v1 import ObjectMeta
from dralloc.api.resource_v1 import ResourceSlice
from dralloc.devices.pool_generation import newest_generation

PoolKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CreateSlice:
    item: ResourceSlice


@dataclass(frozen=True, slots=True)
class ReplaceSlice:
    item: ResourceSlice


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    item: ResourceSlice


SliceAction = CreateSlice | ReplaceSlice | DeleteSlice


def pool_of(item: ResourceSlice) -> PoolKey:
    return item.spec.driver, item.spec.pool.name


def plan_pool(wanted: Iterable[ResourceSlice], existing: Mapping[str, ResourceSlice]) -> Iterator[SliceAction]:
    """The writes for one pool; `existing` are its slices by their names. Nothing where all is as it should be.

    A pool that differs in any slice gets a new generation, so that nobody takes a mixture of old and new for the pool.
    """
    by_name = {item.metadata.name: item for item in wanted}
    if by_name.keys() == existing.keys() and all(_is_same(item, existing[name]) for name, item in by_name.items()):
        return
    generation = newest_generation(existing.values()) + 1
    for name, item in existing.items():
        if name not in by_name:
            yield DeleteSlice(item)
    for name, item in by_name.items():
        spec = msgspec.structs.replace(item.spec, pool=msgspec.structs.replace(item.spec.pool, generation=generation))
        before = existing.get(name)
        if before is None:
            yield CreateSlice(msgspec.structs.replace(item, spec=spec))
        else:
            metadata = msgspec.structs.replace(
                before.metadata, labels=item.metadata.labels, owner_references=item.metadata.owner_references
            )
            yield ReplaceSlice(msgspec.structs.replace(item, spec=spec, metadata=_without_history(metadata)))


def _is_same(wanted: ResourceSlice, existing: ResourceSlice) -> bool:
    """Whether they are equal but for the generation, which is not ours to choose."""
    pool = msgspec.structs.replace(wanted.spec.pool, generation=existing.spec.pool.generation)
    return msgspec.structs.replace(wanted.spec, pool=pool) == existing.spec


def _without_history(metadata: ObjectMeta) -> ObjectMeta:
    return msgspec.structs.replace(metadata, managed_fields=())
