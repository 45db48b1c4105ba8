"""The rules that published slices keep, at one moment and over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dralloc.api.resource_v1 import ResourceSlice
from dralloc.devices.pool_generation import is_complete, newest_generation, newest_slices
from dralloc.driver_kit.findings import Finding, Remark, Violation


def pools_of(slices: Iterable[ResourceSlice]) -> dict[str, list[ResourceSlice]]:
    """The slices of the newest generation of each of the driver's pools, in the order of their names."""
    by_name = sorted(slices, key=lambda item: item.metadata.name)
    return {pool_id.pool: items for pool_id, items in newest_slices(by_name).items()}


def are_complete(slices: Iterable[ResourceSlice]) -> bool:
    """True if there is a pool and every pool is completely published."""
    pools = pools_of(slices)
    return bool(pools) and all(map(is_complete, pools.values()))


def judge_published(slices: Iterable[ResourceSlice], node_name: str) -> Iterator[Finding]:
    """What a scheduler would stumble over."""
    slices = list(slices)
    for name, items in pools_of(slices).items():
        counts = {item.spec.pool.resource_slice_count for item in items}
        if counts != {len(items)}:
            said = " and ".join(map(str, sorted(counts)))
            yield Violation(
                f"pool {name}: {len(items)} slices are there and {said} announced; nothing is allocated from it"
            )
        devices = Counter(device.name for item in items for device in item.spec.devices or ())
        for device, count in devices.items():
            if count > 1:
                yield Violation(f"pool {name}: device {device} is there {count} times; the pool counts as invalid")
        yield from _judge_counters(name, items)
    for item in slices:
        yield from _judge_placement(item, node_name)


def _judge_counters(pool: str, slices: list[ResourceSlice]) -> Iterator[Finding]:
    sets = {counters.name: counters.counters for item in slices for counters in item.spec.shared_counters or ()}
    for device in (device for item in slices for device in item.spec.devices or ()):
        for drawn in device.consumes_counters:
            missing = drawn.counters.keys() - sets.get(drawn.counter_set, {}).keys()
            if missing:
                names = ", ".join(sorted(f"{drawn.counter_set}/{name}" for name in missing))
                yield Violation(f"pool {pool}: device {device.name} draws from {names}, which the pool does not have")


def _judge_placement(item: ResourceSlice, node_name: str) -> Iterator[Finding]:
    name = item.metadata.name
    if item.spec.node_name is not None and item.spec.node_name != node_name:
        yield Violation(f"slice {name} is for node {item.spec.node_name}, and the driver runs on {node_name}")
    owners = [owner for owner in item.metadata.owner_references if owner.kind == "Node"]
    if item.spec.node_name and not owners:
        yield Remark(f"slice {name} is not owned by its Node, so it stays when the node is removed")


# --- Over time ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SliceHistory:
    """Watches slices change, event by event, and notes what breaks the rules of generations."""

    faults: list[Violation] = field(default_factory=list)
    _slices: dict[str, ResourceSlice] = field(default_factory=dict)

    def put(self, item: ResourceSlice) -> None:
        """A slice came or changed."""
        name, pool, generation = item.metadata.name, item.spec.pool.name, item.spec.pool.generation
        before = self._slices.get(name)
        if before is not None and generation < before.spec.pool.generation:
            self._note(f"slice {name} went from generation {before.spec.pool.generation} back to {generation}")
        newest = newest_generation(self._of(pool))
        if before is None and generation < newest:
            self._note(f"slice {name} came with generation {generation}, when pool {pool} had {newest} already")
        self._slices[name] = item
        self._check_mixture(pool, name)

    def remove(self, name: str) -> None:
        """A slice is gone. A pool that has lost all its slices may begin anew."""
        self._slices.pop(name, None)

    def _of(self, pool: str) -> list[ResourceSlice]:
        return [item for item in self._slices.values() if item.spec.pool.name == pool]

    def _check_mixture(self, pool: str, changed: str) -> None:
        """Who moves devices between slices without a new generation shows some twice, in a pool that looks complete."""
        current = pools_of(self._of(pool))[pool]
        if not is_complete(current):
            return
        names = Counter(device.name for item in current for device in item.spec.devices or ())
        if twice := sorted(name for name, count in names.items() if count > 1):
            self._note(
                f"when slice {changed} changed, pool {pool} looked complete and had {', '.join(twice)} twice: "
                "a change of several slices needs a new generation"
            )

    def _note(self, text: str) -> None:
        self.faults.append(Violation(text))
