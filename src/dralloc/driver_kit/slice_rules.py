"""The rules for published slices, at one moment and over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dralloc.devices.published_slice import is_complete, newest_generation, newest_slices
from dralloc.driver_kit.findings import Finding, Remark, Violation
from dralloc.kube.resource_v1 import ResourceSlice


def pools_of(slices: Iterable[ResourceSlice]) -> dict[str, list[ResourceSlice]]:
    """The slices of the newest generation of each of the driver's pools, in the order of their names."""
    by_name = sorted(slices, key=lambda item: item.metadata.name)
    return {pool_id.pool: items for pool_id, items in newest_slices(by_name).items()}


def are_complete(slices: Iterable[ResourceSlice]) -> bool:
    """True if there is a pool and every pool is completely published."""
    pools = pools_of(slices)
    return bool(pools) and all(map(is_complete, pools.values()))


def check_published(slices: Iterable[ResourceSlice], node_name: str) -> Iterator[Finding]:
    """What keeps a scheduler from allocating the devices."""
    slices = list(slices)
    for name, items in pools_of(slices).items():
        counts = sorted({item.spec.pool.resource_slice_count for item in items})
        if len(counts) > 1:
            announced = " and ".join(map(str, counts))
            yield Violation(f"pool {name}: its slices announce {announced} slices; nothing is allocated from it")
        elif counts != [len(items)]:
            yield Violation(
                f"pool {name}: only {len(items)} of {counts[0]} slices are published; nothing is allocated from it"
            )
        devices = Counter(device.name for item in items for device in item.spec.devices or ())
        for device, count in devices.items():
            if count > 1:
                yield Violation(f"pool {name}: device {device} is published {count} times; the pool is invalid")
        yield from _check_counters(name, items)
    for item in slices:
        yield from _check_placement(item, node_name)


def _check_counters(pool: str, slices: list[ResourceSlice]) -> Iterator[Finding]:
    sets = {counters.name: counters.counters for item in slices for counters in item.spec.shared_counters or ()}
    for device in (device for item in slices for device in item.spec.devices or ()):
        for drawn in device.consumes_counters:
            missing = drawn.counters.keys() - sets.get(drawn.counter_set, {}).keys()
            if missing:
                names = ", ".join(sorted(f"{drawn.counter_set}/{name}" for name in missing))
                yield Violation(
                    f"pool {pool}: device {device.name} consumes counter {names}, which the pool does not have"
                )


def _check_placement(item: ResourceSlice, node_name: str) -> Iterator[Finding]:
    name = item.metadata.name
    if item.spec.node_name is not None and item.spec.node_name != node_name:
        yield Violation(f"slice {name} is for node {item.spec.node_name}, but the driver runs on {node_name}")
    owners = [owner for owner in item.metadata.owner_references if owner.kind == "Node"]
    if item.spec.node_name and not owners:
        yield Remark(f"slice {name} has no owner reference to its Node, so it remains when the node is deleted")


@dataclass(slots=True)
class SliceHistory:
    """Records violations of the rules for generations while slices change."""

    violations: list[Violation] = field(default_factory=list)
    _slices: dict[str, ResourceSlice] = field(default_factory=dict)

    def put(self, item: ResourceSlice) -> None:
        """The slice was created or changed."""
        name, pool, generation = item.metadata.name, item.spec.pool.name, item.spec.pool.generation
        before = self._slices.get(name)
        if before is not None and generation < before.spec.pool.generation:
            self._note(f"slice {name} went back from generation {before.spec.pool.generation} to {generation}")
        newest = newest_generation(self._of(pool))
        if before is None and generation < newest:
            self._note(
                f"slice {name} was created with generation {generation} although pool {pool} already had {newest}"
            )
        self._slices[name] = item
        self._check_mixture(pool, name)

    def remove(self, name: str) -> None:
        """The slice was deleted. A pool without slices may start again with any generation."""
        self._slices.pop(name, None)

    def _of(self, pool: str) -> list[ResourceSlice]:
        return [item for item in self._slices.values() if item.spec.pool.name == pool]

    def _check_mixture(self, pool: str, changed: str) -> None:
        """Moving devices between slices without a new generation shows some twice in a pool that looks complete."""
        current = pools_of(self._of(pool))[pool]
        if not is_complete(current):
            return
        names = Counter(device.name for item in current for device in item.spec.devices or ())
        if twice := sorted(name for name, count in names.items() if count > 1):
            self._note(
                f"when slice {changed} changed, pool {pool} looked complete but had {', '.join(twice)} twice: "
                "a change of several slices needs a new generation"
            )

    def _note(self, text: str) -> None:
        self.violations.append(Violation(text))
